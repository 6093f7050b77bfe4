// SPDX-License-Identifier: Apache-2.0
//
// Delta frames: the difference of one tensor as a disk delta holds it, read and written
// (docs/format.md, section 10). What a frame claims is compared with the tensor's size before
// anything is allocated or changed beyond the tensor's own buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "codec/block_codec.h"
#include "codec/zstd_frame.h"
#include "segue/status.h"

namespace segue {

enum class DeltaEncoding : std::uint8_t { kXor, kOverwrite };

// "xor", "overwrite".
std::optional<DeltaEncoding> DeltaEncodingFromName(std::string_view name);
std::string_view DeltaEncodingName(DeltaEncoding encoding);

// The largest frame that is read for a tensor of `tensor_size` bytes.
std::uint64_t DeltaFrameSizeMax(DeltaEncoding encoding, std::uint64_t tensor_size);

// Holds contexts and buffers, for many frames. Not thread-safe.
class DeltaFrameReader {
 public:
  // Turns the tensor's old bytes into the new ones. On a failure `bytes` are of no use.
  Status Apply(DeltaEncoding encoding, ByteSpan frame, MutableByteSpan bytes);

 private:
  Status ApplyXor(ByteSpan frame, MutableByteSpan bytes);
  Status ApplyOverwrite(ByteSpan frame, MutableByteSpan bytes);

  ZstdPieceDecoder pieces_;
  ZstdDecompressor zstd_;
  ByteVector content_;
};

// The same for writing.
class DeltaFrameWriter {
 public:
  // The frame that leads from `old_bytes` to `new_bytes`, valid until the next call. `old_bytes`
  // may be changed: a mask is formed there. InvalidArgument where `overwrite` cannot say it.
  Result<ByteSpan> Make(DeltaEncoding encoding, MutableByteSpan old_bytes, ByteSpan new_bytes);

 private:
  Result<ByteSpan> Compress(ByteSpan content);
  Status FillOverwrite(ByteSpan old_bytes, ByteSpan new_bytes);

  ZstdCompressor zstd_{1};
  ByteVector content_;
  ByteVector frame_;
};

}  // namespace segue
