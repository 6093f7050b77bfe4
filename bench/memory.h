// SPDX-License-Identifier: Apache-2.0
//
// Memory of the benchmark: buffers that ask for huge pages, as weights lie in an engine, and a
// meter of resident memory.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue::bench {

// Anonymous memory, zero at first. Move-only.
class HugeBuffer {
 public:
  static Result<HugeBuffer> Make(std::uint64_t size);

  HugeBuffer() = default;
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;

  MutableByteSpan bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Peak of the process's resident memory from construction on, above what was resident then. Pages
// that were there before, such as the versions compared, do not count. One at a time.
class PeakMeter {
 public:
  PeakMeter();
  // 0 where the system does not let a process reset its peak.
  std::uint64_t PeakBytes() const;

 private:
  std::uint64_t before_ = 0;
  bool works_ = false;
};

}  // namespace segue::bench
