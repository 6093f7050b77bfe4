// SPDX-License-Identifier: Apache-2.0
//
// Delta frames: `xor` is decoded in pieces into the tensor's buffer, `overwrite` whole, since its
// bytes stand behind all positions.
#include "interop/delta_frame.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "device/host/kernels.h"

namespace segue {
namespace {

constexpr std::uint64_t kCountSize = 4;
constexpr std::uint64_t kPositionSize = 4;
constexpr std::uint64_t kChangeSize = kPositionSize + 1;
constexpr std::uint64_t kPositionEnd = 1ull << 32;

std::uint64_t ContentSizeMax(DeltaEncoding encoding, std::uint64_t tensor_size) {
  if (encoding == DeltaEncoding::kXor) return tensor_size;
  return kCountSize + kChangeSize * std::min(tensor_size, kPositionEnd - 1);
}

std::uint64_t CountChanges(ByteSpan a, ByteSpan b) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

}  // namespace

std::optional<DeltaEncoding> DeltaEncodingFromName(std::string_view name) {
  if (name == "xor") return DeltaEncoding::kXor;
  if (name == "overwrite") return DeltaEncoding::kOverwrite;
  return std::nullopt;
}

std::string_view DeltaEncodingName(DeltaEncoding encoding) {
  return encoding == DeltaEncoding::kXor ? "xor" : "overwrite";
}

std::uint64_t DeltaFrameSizeMax(DeltaEncoding encoding, std::uint64_t tensor_size) {
  return ZstdBound(ContentSizeMax(encoding, tensor_size)) + limits::kDiskDeltaFrameSlack;
}

Status DeltaFrameReader::Apply(DeltaEncoding encoding, ByteSpan frame, MutableByteSpan bytes) {
  return encoding == DeltaEncoding::kXor ? ApplyXor(frame, bytes) : ApplyOverwrite(frame, bytes);
}

Status DeltaFrameReader::ApplyXor(ByteSpan frame, MutableByteSpan bytes) {
  SEGUE_RETURN_IF_ERROR(pieces_.Start(frame, bytes.size()));
  for (;;) {
    SEGUE_ASSIGN_OR_RETURN(const ByteSpan piece, pieces_.Next());
    if (piece.empty()) return {};
    host::ActiveKernels().xor_bytes(bytes.data(), piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

Status DeltaFrameReader::ApplyOverwrite(ByteSpan frame, MutableByteSpan bytes) {
  const auto size = ZstdContentSize(frame);
  if (!size) return Corruption("the frame does not state its content's size");
  const std::uint64_t size_max = ContentSizeMax(DeltaEncoding::kOverwrite, bytes.size());
  if (*size < kCountSize || *size > size_max || (*size - kCountSize) % kChangeSize != 0) {
    return Corruption("the frame states " + std::to_string(*size) +
                      " bytes of content, which are no changes of a tensor of " +
                      std::to_string(bytes.size()));
  }
  // Before memory is taken: the frame is one frame and states what it must.
  SEGUE_RETURN_IF_ERROR(CheckZstdFrame(frame, *size, ZstdChecksum::kOptional));
  content_.resize(*size);
  SEGUE_RETURN_IF_ERROR(zstd_.Decompress(frame, content_, ZstdChecksum::kOptional));
  const std::uint64_t count = (*size - kCountSize) / kChangeSize;
  const auto stated = LoadLittle<std::uint32_t>(content_.data());
  if (stated != count) {
    return Corruption("the diff counts " + std::to_string(stated) + " changes, it has room for " +
                      std::to_string(count));
  }
  const std::byte* const positions = content_.data() + kCountSize;
  const std::byte* const values = positions + kPositionSize * count;
  std::uint64_t next = 0;  // The least position that may come.
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto position = LoadLittle<std::uint32_t>(positions + kPositionSize * i);
    if (position < next || position >= bytes.size()) {
      return Corruption("change " + std::to_string(i) + " is at byte " + std::to_string(position) +
                        (position < next ? ", not behind the one before it"
                                         : " of a tensor of " + std::to_string(bytes.size())));
    }
    bytes[position] = values[i];
    next = std::uint64_t{position} + 1;
  }
  return {};
}

Result<ByteSpan> DeltaFrameWriter::Make(DeltaEncoding encoding, MutableByteSpan old_bytes,
                                        ByteSpan new_bytes) {
  if (encoding == DeltaEncoding::kXor) {
    host::ActiveKernels().xor_bytes(old_bytes.data(), new_bytes.data(), old_bytes.data(),
                                    old_bytes.size());
    return Compress(old_bytes);
  }
  SEGUE_RETURN_IF_ERROR(FillOverwrite(old_bytes, new_bytes));
  return Compress(content_);
}

Status DeltaFrameWriter::FillOverwrite(ByteSpan old_bytes, ByteSpan new_bytes) {
  const std::uint64_t count = CountChanges(old_bytes, new_bytes);
  if (count >= kPositionEnd) {
    return InvalidArgument("'overwrite' cannot count " + std::to_string(count) +
                           " changed bytes: use 'xor'");
  }
  content_.resize(kCountSize + kChangeSize * count);
  StoreLittle(content_.data(), static_cast<std::uint32_t>(count));
  std::byte* position = content_.data() + kCountSize;
  std::byte* value = position + kPositionSize * count;
  for (std::size_t i = 0; i < old_bytes.size(); ++i) {
    if (old_bytes[i] == new_bytes[i]) continue;
    if (i >= kPositionEnd) {
      return InvalidArgument("'overwrite' cannot name byte " + std::to_string(i) +
                             ", which changes: use 'xor'");
    }
    StoreLittle(position, static_cast<std::uint32_t>(i));
    position += kPositionSize;
    *value++ = new_bytes[i];
  }
  return {};
}

Result<ByteSpan> DeltaFrameWriter::Compress(ByteSpan content) {
  if (frame_.size() < ZstdBound(content.size())) frame_.resize(ZstdBound(content.size()));
  SEGUE_ASSIGN_OR_RETURN(const std::size_t size, zstd_.Compress(content, frame_));
  return ByteSpan(frame_).first(size);
}

}  // namespace segue
