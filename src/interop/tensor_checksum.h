// SPDX-License-Identifier: Apache-2.0
//
// Checksums of whole tensors, as disk deltas state them (docs/format.md, section 10): the kinds,
// and hashing in pieces.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

enum class ChecksumKind : std::uint8_t { kXxh3, kBlake3, kAdler32 };

// "xxh3-128", "blake3", "adler32".
std::optional<ChecksumKind> ChecksumKindFromName(std::string_view name);
std::string_view ChecksumKindName(ChecksumKind kind);

// The checksum's bytes in the order of its digits; those beyond its size are 0.
struct TensorChecksum {
  std::array<std::byte, 32> bytes{};

  bool operator==(const TensorChecksum&) const = default;
  std::string ToHex(ChecksumKind kind) const;
  // Exactly the digits of the kind, or nothing.
  static std::optional<TensorChecksum> FromHex(ChecksumKind kind, std::string_view text);
};

// Reusable: Start() begins anew. Not thread-safe.
class TensorHasher {
 public:
  TensorHasher();
  ~TensorHasher();
  TensorHasher(TensorHasher&&) noexcept;
  TensorHasher& operator=(TensorHasher&&) noexcept;

  void Start(ChecksumKind kind);
  void Add(ByteSpan bytes);
  TensorChecksum Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

TensorChecksum HashTensor(ChecksumKind kind, ByteSpan bytes);

}  // namespace segue
