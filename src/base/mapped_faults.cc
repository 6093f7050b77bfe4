// SPDX-License-Identifier: Apache-2.0
//
// Mapped faults: a handler for SIGBUS that finds the file's name in /proc/self/maps. Everything
// below runs in the handler: no allocation, no lock, no stdio.
#include "segue/mapped_faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/begun_apply.h"

namespace segue {
namespace {

std::atomic<MappedFaultReport> report_fault{nullptr};
std::atomic_flag reported = ATOMIC_FLAG_INIT;

// Text of bounded size.
template <std::size_t kSize>
class FixedText {
 public:
  void Add(std::string_view text) {
    const std::size_t size = std::min(text.size(), kSize - size_);
    std::memcpy(text_ + size_, text.data(), size);
    size_ += size;
  }
  // As it may be shown and put into quotes anywhere.
  void AddPlain(std::string_view text) {
    for (const char c : text) {
      const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '\'';
      Add(plain ? std::string_view(&c, 1) : "?");
    }
  }
  std::string_view text() const { return {text_, size_}; }
  void Clear() { size_ = 0; }

 private:
  char text_[kSize];
  std::size_t size_ = 0;
};

// The path of one line of maps, "begin-end rights offset device inode   path", if `address` lies in
// it; else empty.
std::string_view PathOfLine(std::string_view line, std::uintptr_t address) {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (first.ec != std::errc() || first.ptr == last) return {};
  const auto second = std::from_chars(first.ptr + 1, last, end, 16);
  if (second.ec != std::errc() || address < begin || address >= end) return {};
  const std::size_t path = line.find('/');
  return path == std::string_view::npos ? std::string_view() : line.substr(path);
}

// Adds the name of the file that is mapped at `address`.
template <typename Text>
void AddMappedPath(std::uintptr_t address, Text& sentence) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  FixedText<4608> line;
  char piece[1024];
  bool found = false;
  for (;;) {
    const ssize_t got = ::read(maps, piece, sizeof(piece));
    if (got <= 0 || found) break;
    for (ssize_t i = 0; i < got && !found; ++i) {
      if (piece[i] != '\n') {
        line.Add({&piece[i], 1});
        continue;
      }
      const std::string_view path = PathOfLine(line.text(), address);
      found = !path.empty();
      if (found) {
        sentence.Add(" ");
        sentence.AddPlain(path);
      }
      line.Clear();
    }
  }
  ::close(maps);
}

void ReportFault(const siginfo_t& info) {
  const MappedFaultReport report = report_fault;
  if (report == nullptr || reported.test_and_set()) return;
  FixedText<5120> sentence;
  sentence.Add(
      "a mapped file cannot be read any more: it shrank, its disk is full, or its device failed:");
  AddMappedPath(reinterpret_cast<std::uintptr_t>(info.si_addr), sentence);
  const bool tainted = BegunApply::Any();
  if (tainted) sentence.Add("; an apply had begun, the weights may be half changed: segue resolve");
  report(sentence.text(), tainted);
}

extern "C" void HandleBusError(int signal, siginfo_t* info, void*) {
  const int error = errno;
  // BUS_ADRERR: nothing is behind the address. The others are faults of memory or of the program.
  if (info != nullptr && info->si_code == BUS_ADRERR) ReportFault(*info);
  // The instruction is run again and meets the signal's default action.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  errno = error;
}

}  // namespace

void CatchMappedFaults(MappedFaultReport report) {
  report_fault = report;
  struct sigaction action = {};
  action.sa_sigaction = HandleBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace segue
