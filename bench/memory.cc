// SPDX-License-Identifier: Apache-2.0
//
// Buffers by mmap; the meter by /proc/self (Linux).
#include "bench/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <charconv>
#include <fstream>
#include <string>
#include <utility>

#include "base/file.h"

namespace segue::bench {
namespace {

// Value in bytes of a line such as "VmHWM:    1234 kB".
std::uint64_t StatusValue(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digits = line.find_first_of("0123456789");
    std::uint64_t kibibytes = 0;
    if (digits != std::string::npos) {
      std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
    }
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

Result<HugeBuffer> HugeBuffer::Make(std::uint64_t size) {
  HugeBuffer buffer;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("no memory for " + std::to_string(size) + " bytes");
  }
  // A wish: without huge pages everything works, with more time spent on page tables.
  (void)madvise(data, size, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  return buffer;
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PeakMeter::PeakMeter() {
  malloc_trim(0);  // Freed memory that stays resident would hide what is allocated next.
  before_ = StatusValue("VmRSS:");
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // Sets the peak to what is resident now (proc(5)).
  works_ = reset.good() && before_ != 0;
}

std::uint64_t PeakMeter::PeakBytes() const {
  const std::uint64_t peak = StatusValue("VmHWM:");
  return works_ && peak > before_ ? peak - before_ : 0;
}

}  // namespace segue::bench
