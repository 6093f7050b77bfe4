// SPDX-License-Identifier: Apache-2.0
//
// The one Zstd frame of a layout object. `checkpoint` may not include `codec`, so the few calls of
// libzstd that it needs are here. The frame's own claims (content size, window) are compared with
// what the object says and with limits before anything is allocated (cases F1, F2, F4, F5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

// Decoded bytes. Not a vector: a large claim that the frame does not keep must not touch its pages.
class LayoutBytes {
 public:
  LayoutBytes(std::unique_ptr<std::byte[]> data, std::size_t size)
      : data_(std::move(data)), size_(size) {}
  ByteSpan bytes() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_;
};

// `frame` is exactly one Zstd frame that decodes to exactly `inner_size` bytes; otherwise
// Corruption.
Result<LayoutBytes> DecodeLayoutFrame(ByteSpan frame, std::uint64_t inner_size);

// Appends one frame (content size, checksum, window within limits) to `object`.
Status EncodeLayoutFrame(ByteSpan inner, ByteVector& object);

}  // namespace segue
