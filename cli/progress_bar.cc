// SPDX-License-Identifier: Apache-2.0
//
// Progress bar: drawing. The line never reaches the last column, where terminals wrap.
#include "cli/progress_bar.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/output.h"

namespace segue::cli {
namespace {

constexpr std::chrono::milliseconds kDelay{1000};
constexpr std::chrono::milliseconds kInterval{100};
constexpr int kBarWidth = 24;
constexpr std::string_view kClear = "\r\x1b[K";  // To column one, then erase to the end.

bool CanShow() {
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return !dumb && isatty(STDERR_FILENO) == 1;
}

std::size_t Columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1U : 79U;
}

void Show(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace

ProgressBar::ProgressBar(std::string_view verb) : shown_(CanShow()), stage_(verb) {
  if (shown_) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

ProgressBar::~ProgressBar() {
  if (!shown_) return;
  thread_.request_stop();
  thread_.join();
}

Progress ProgressBar::callback() {
  if (!shown_) return {};
  return [this](std::string_view stage, std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(mutex_);
    stage_ = stage;
    done_ = done;
    total_ = total;
  };
}

void ProgressBar::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto stopped = [&stop] { return stop.stop_requested(); };
  if (changed_.wait_for(lock, stop, kDelay, stopped)) return;
  do {
    Draw();
  } while (!changed_.wait_for(lock, stop, kInterval, stopped));
  Show(kClear);
}

void ProgressBar::Draw() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::string line = Printable(stage_);
  if (total_ > 0) {
    const double share = static_cast<double>(std::min(done_, total_)) / static_cast<double>(total_);
    line += fmt::format("  [{:<{}}]  {:3.0f} %  {} of {}", TextBar(share, kBarWidth), kBarWidth,
                        100 * share, HumanBytes(done_), HumanBytes(total_));
  } else if (done_ > 0) {
    line += "  " + HumanBytes(done_);
  }
  line += fmt::format("  {:.1f} s", elapsed.count());
  line.resize(std::min(line.size(), Columns()));
  Show(std::string(kClear) + line);
}

}  // namespace segue::cli
