// SPDX-License-Identifier: Apache-2.0
//
// Watch loop. What is published is shown at once: whoever started this reads it as it comes.
#include "cli/watch_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/output.h"
#include "cli/signals.h"
#include "segue/fleet.h"

namespace segue::cli {
namespace {

constexpr std::chrono::milliseconds kBackoffMax{60'000};

void ShowVersion(const WatchLoop& loop, const WatchLook& look) {
  const PublishReport& report = *look.published;
  if (loop.json) {
    Json json = {{"checkpoint", look.checkpoint}};
    json.update(loop.to_json(report));
    PrintJson(json);
  } else {
    PrintLine(fmt::format("{}: version {} to {}{}, {} changed, payload {}",
                          Printable(look.checkpoint), report.base_version, report.target_version,
                          report.already_published ? " (was there already)" : "",
                          Counted(report.changed_elements, "element"),
                          HumanBytes(report.payload_bytes)));
  }
  (void)std::fflush(stdout);
}

void Show(const WatchLoop& loop, const WatchLook& look) {
  PrintWarnings("publish", look.warnings);
  if (look.published) {
    PrintWarnings("publish", look.published->warnings);
    ShowVersion(loop, look);
  } else if (look.began && !loop.json) {
    PrintLine(fmt::format("{}: the base of the next version", Printable(look.checkpoint)));
    (void)std::fflush(stdout);
  }
}

// Whether the engines have what was published last. One look at them; who is behind for longer than
// the timeout is a line, and the next one comes after twice the time.
class Acknowledgement {
 public:
  Acknowledgement(const Cohort& cohort, const PublishOptions& options)
      : cohort_(cohort), options_(options), patience_(cohort.timeout) {
    cohort_.timeout = std::chrono::milliseconds(0);
  }

  void Expect(const PublishReport& report) {
    if (cohort_.engines.empty()) return;
    waiting_ = true;
    awaited_ = AwaitedOf(report, options_);
    since_ = Clock::now();
    told_after_ = patience_;
  }

  bool IsComplete() {
    if (!waiting_) return true;
    const Status status = WaitForEngines(cohort_, awaited_);
    waiting_ = !status.ok();
    if (waiting_ && Clock::now() - since_ >= told_after_) {
      PrintError("publish", status);
      told_after_ = 2 * std::max(told_after_, std::chrono::milliseconds(1000));
    }
    return !waiting_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Cohort cohort_;
  const PublishOptions& options_;
  const std::chrono::milliseconds patience_;
  bool waiting_ = false;
  AwaitedVersion awaited_;
  Clock::time_point since_;
  std::chrono::milliseconds told_after_{};
};

}  // namespace

AwaitedVersion AwaitedOf(const PublishReport& report, const PublishOptions& options) {
  return {.lineage = report.lineage,
          .version = report.target_version,
          .digest = report.target_digest,
          .store = options.store,
          .keys = options.keys};
}

Result<Report> RunWatch(const WatchLoop& loop) {
  CatchStopSignals();
  const auto watcher = CheckpointWatcher::Open(loop.options);
  if (!watcher.ok()) return watcher.status();
  std::chrono::milliseconds wait = loop.interval;
  Acknowledgement acknowledgement(loop.cohort, loop.options.publish);
  while (!StopRequested()) {
    if (!acknowledgement.IsComplete()) {
      WaitForStop(loop.interval);
      continue;
    }
    const Result<WatchLook> look = watcher.value()->Look();
    if (look.ok()) {
      Show(loop, look.value());
      wait = loop.interval;
      if (look->published) acknowledgement.Expect(*look->published);
      if (look->published || look->began) continue;  // There may be more.
    } else {
      PrintError("publish", look.status());
      wait = std::min(std::max(2 * wait, std::chrono::milliseconds(1)), kBackoffMax);
    }
    WaitForStop(wait);
  }
  Report report;
  report.shown = true;
  return report;
}

}  // namespace segue::cli
