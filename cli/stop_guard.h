// SPDX-License-Identifier: Apache-2.0
//
// Stop guard: what a verb still does when it is told to stop (Ctrl-C, SIGTERM) in the middle of
// work that cannot be stopped from outside: remove what it has half written, or say what to do.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace segue::cli {

// While it lives, SIGINT and SIGTERM call `clean`, show the sentence that it returns, and end the
// program with 128 + the signal's number, as a shell would. `clean` runs beside the work, which
// goes on until the end. Make it before the work's threads: they must not take the signals.
class StopGuard {
 public:
  StopGuard(std::string verb, std::function<std::string()> clean);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

 private:
  void Wait(const std::stop_token& stop) const;

  std::string verb_;
  std::function<std::string()> clean_;
  sigset_t watched_ = {};
  sigset_t before_ = {};
  std::jthread thread_;  // Last: it uses all of the above.
};

// Removes directory trees that somebody may still be writing to, until they stay away.
void RemoveWhileWritten(const std::vector<std::string>& directories);

}  // namespace segue::cli
