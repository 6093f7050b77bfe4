// SPDX-License-Identifier: Apache-2.0
//
// Signals: a flag that the handler sets, and a short sleep that it cuts.
#include "cli/signals.h"

#include <time.h>

#include <csignal>

namespace segue::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

extern "C" void NoteStop(int) { stop_requested = 1; }

}  // namespace

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = NoteStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

void WaitForStop() {
  // The signal may arrive between the look and the sleep; then the sleep's end sees it.
  const timespec interval = {0, 50'000'000};
  while (!StopRequested()) (void)::nanosleep(&interval, nullptr);
}

}  // namespace segue::cli
