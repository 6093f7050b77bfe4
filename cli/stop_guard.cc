// SPDX-License-Identifier: Apache-2.0
//
// Stop guard: the signals are blocked everywhere and taken by one thread that waits for them, so
// that what follows is ordinary code rather than a handler.
#include "cli/stop_guard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/output.h"

namespace segue::cli {
namespace {

constexpr timespec kInterval = {0, 50'000'000};
constexpr std::chrono::milliseconds kRemoveInterval{20};
constexpr int kRemoveTries = 50;

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

StopGuard::StopGuard(std::string verb, std::function<std::string()> clean)
    : verb_(std::move(verb)), clean_(std::move(clean)) {
  sigemptyset(&watched_);
  for (const int signal : {SIGINT, SIGTERM}) {
    if (!IsIgnored(signal)) sigaddset(&watched_, signal);  // nohup's wish stands.
  }
  (void)pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  thread_ = std::jthread([this](const std::stop_token& stop) { Wait(stop); });
}

StopGuard::~StopGuard() {
  thread_.request_stop();
  thread_.join();
  (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopGuard::Wait(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    const int signal = ::sigtimedwait(&watched_, nullptr, &kInterval);
    if (signal <= 0) continue;
    const std::string sentence = clean_();
    (void)std::fputs(fmt::format("segue {}: interrupted; {}\n", verb_, Printable(sentence)).c_str(),
                     stderr);
    ::_exit(128 + signal);
  }
}

void RemoveWhileWritten(const std::vector<std::string>& directories) {
  // A file that appears between listing and removal fails the latter, and a directory may come
  // back.
  const auto is_there = [](const std::string& directory) {
    std::error_code error;
    return std::filesystem::is_directory(directory, error);
  };
  for (int tries = 0; tries < kRemoveTries; ++tries) {
    std::error_code error;
    for (const std::string& directory : directories) {
      std::filesystem::remove_all(directory, error);
    }
    std::this_thread::sleep_for(kRemoveInterval);
    if (std::none_of(directories.begin(), directories.end(), is_there)) return;
  }
}

}  // namespace segue::cli
