// SPDX-License-Identifier: Apache-2.0
//
// Signals: a flag that the handler sets, and a short sleep that it cuts. What runs in a handler
// uses async-signal-safe calls alone.
#include "cli/signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <string_view>

#include "cli/output.h"
#include "segue/mapped_faults.h"

namespace segue::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

extern "C" void NoteStop(int) { stop_requested = 1; }

volatile std::sig_atomic_t wants_json = 0;

// What cannot be written in a handler is lost.
void Write(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(descriptor, text.data(), text.size());
    if (wrote <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

[[noreturn]] void ReportMappedFault(std::string_view sentence, bool tainted) {
  const StatusCode code = tainted ? StatusCode::kTainted : StatusCode::kUnavailable;
  const std::string_view name = StatusCodeName(code);
  if (wants_json != 0) {
    for (const std::string_view text :
         {std::string_view("{\"error\":{\"code\":\""), name, std::string_view("\",\"message\":\""),
          sentence, std::string_view("\"}}\n")}) {
      Write(STDOUT_FILENO, text);
    }
  }
  for (const std::string_view text : {std::string_view("segue: "), sentence, std::string_view(" ("),
                                      name, std::string_view(")\n")}) {
    Write(STDERR_FILENO, text);
  }
  ::_exit(ExitCode(code));
}

}  // namespace

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = NoteStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

void WaitForStop() { WaitForStop(std::chrono::milliseconds::max()); }

void WaitForStop(std::chrono::milliseconds time) {
  // The signal may arrive between the look and the sleep; then the sleep's end sees it.
  constexpr std::chrono::milliseconds kStep{50};
  while (!StopRequested() && time.count() > 0) {
    const std::chrono::milliseconds step = std::min(kStep, time);
    const timespec interval = {0, static_cast<long>(step.count()) * 1'000'000};
    (void)::nanosleep(&interval, nullptr);
    time -= step;
  }
}

void TurnSignalsIntoErrors(bool json) {
  wants_json = json ? 1 : 0;
  (void)std::signal(SIGXFSZ, SIG_IGN);
  CatchMappedFaults(ReportMappedFault);
}

}  // namespace segue::cli
