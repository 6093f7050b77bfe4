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

}  // namespace

Result<Report> RunWatch(const WatchLoop& loop) {
  CatchStopSignals();
  const auto watcher = CheckpointWatcher::Open(loop.options);
  if (!watcher.ok()) return watcher.status();
  std::chrono::milliseconds wait = loop.interval;
  while (!StopRequested()) {
    const Result<WatchLook> look = watcher.value()->Look();
    if (look.ok()) {
      Show(loop, look.value());
      wait = loop.interval;
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
