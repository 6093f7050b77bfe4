// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the decoder cores share: a core run over exact heap buffers, and
// decoders that do the same as plainly as can be said, byte by byte, as a second opinion.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"

namespace segue::cuda {

enum class BlockCodec { kSnappy, kLz4 };

// What a core makes of a block that is said to decode to `size` bytes.
struct CoreOutcome {
  DecodeResult result = {};
  ByteVector bytes;
};

inline DecodeResult RunOnHostWarp(BlockCodec codec, const DecodeRow& row) {
  return codec == BlockCodec::kSnappy ? RunSnappyRow(HostWarp(), row) : RunLz4Row(HostWarp(), row);
}

inline CoreOutcome RunCore(BlockCodec codec, ByteSpan block, std::size_t size,
                           DecodeResult (*run)(BlockCodec, const DecodeRow&) = RunOnHostWarp) {
  constexpr std::size_t kCanarySize = 64;
  constexpr std::byte kCanary{0xc5};
  // Of the exact size, so that AddressSanitizer sees reads outside; and at an odd address.
  const ByteVector source(block.begin(), block.end());
  ByteVector all(size + 2 * kCanarySize + 3, kCanary);
  std::byte* const target = all.data() + kCanarySize + 3;
  const DecodeRow row = {source.data(), source.size(), target, size};
  CoreOutcome outcome;
  outcome.result = run(codec, row);
  outcome.bytes.assign(target, target + size);
  for (const std::byte* place = all.data(); place < all.data() + all.size(); ++place) {
    SEGUE_CHECK((place >= target && place < target + size) || *place == kCanary);
  }
  SEGUE_CHECK(outcome.result.written <= size);
  return outcome;
}

// Takes numbers off a block; `ok` falls where it ends.
struct PlainReader {
  ByteSpan left;
  bool ok = true;

  unsigned Byte() {
    ok = ok && !left.empty();
    if (!ok) return 0;
    const auto value = std::to_integer<unsigned>(left.front());
    left = left.subspan(1);
    return value;
  }
  std::size_t Number(unsigned size) {
    std::size_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= std::size_t{Byte()} << 8 * i;
    return value;
  }
};

// The decoded bytes, never more than `size`.
struct PlainOutput {
  std::size_t size;
  ByteVector bytes = {};

  bool Literal(PlainReader& reader, std::size_t count) {
    if (!reader.ok || count > reader.left.size() || count > size - bytes.size()) return false;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(reader.Byte()));
    return true;
  }
  bool Copy(const PlainReader& reader, std::size_t offset, std::size_t count) {
    if (!reader.ok || offset == 0 || offset > bytes.size()) return false;
    if (count > size - bytes.size()) return false;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(bytes[bytes.size() - offset]);
    return true;
  }
  std::optional<ByteVector> Whole() const {
    return bytes.size() == size ? std::optional(bytes) : std::nullopt;
  }
};

inline std::optional<ByteVector> PlainSnappy(ByteSpan block, std::size_t size) {
  PlainReader reader{block};
  std::size_t stated = 0;
  for (unsigned shift = 0;; shift += 7) {
    const unsigned byte = reader.Byte();
    stated |= std::size_t{byte & 0x7f} << shift;
    if (!reader.ok || shift > 28 || stated > 0xffffffff) return std::nullopt;
    if (byte < 0x80) break;
  }
  if (stated != size) return std::nullopt;
  PlainOutput output{size};
  while (!reader.left.empty()) {
    const unsigned tag = reader.Byte();
    const std::size_t count = (tag >> 2) + 1;
    bool taken = false;
    if ((tag & 3) == 0) {
      taken = output.Literal(
          reader, count <= 60 ? count : reader.Number(static_cast<unsigned>(count - 60)) + 1);
    } else if ((tag & 3) == 1) {
      const std::size_t offset = (tag >> 5 << 8) + reader.Number(1);
      taken = output.Copy(reader, offset, 4 + (tag >> 2) % 8);
    } else {
      const std::size_t offset = reader.Number((tag & 3) == 2 ? 2 : 4);
      taken = output.Copy(reader, offset, count);
    }
    if (!taken) return std::nullopt;
  }
  return output.Whole();
}

inline std::optional<ByteVector> PlainLz4(ByteSpan block, std::size_t size) {
  PlainReader reader{block};
  const auto length = [&](std::size_t nibble) {
    for (unsigned byte = nibble == 15 ? 255 : 0; byte == 255 && reader.ok;) {
      byte = reader.Byte();
      nibble += byte;
    }
    return nibble;
  };
  PlainOutput output{size};
  while (true) {
    const unsigned token = reader.Byte();
    if (!output.Literal(reader, length(token >> 4))) return std::nullopt;
    if (reader.left.empty()) return output.Whole();
    const std::size_t offset = reader.Number(2);
    if (!output.Copy(reader, offset, length(token & 15) + 4)) return std::nullopt;
  }
}

inline std::optional<ByteVector> PlainDecode(BlockCodec codec, ByteSpan block, std::size_t size) {
  return codec == BlockCodec::kSnappy ? PlainSnappy(block, size) : PlainLz4(block, size);
}

}  // namespace segue::cuda
