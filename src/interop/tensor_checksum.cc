// SPDX-License-Identifier: Apache-2.0
//
// Checksums: XXH3 by libxxhash, Adler-32 by zlib, BLAKE3 by ourselves.
#include "interop/tensor_checksum.h"

#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/allocated.h"
#include "base/blake3.h"
#include "base/check.h"

namespace segue {
namespace {

struct Kind {
  ChecksumKind kind;
  std::string_view name;
  std::size_t size;
};

constexpr Kind kKinds[] = {{ChecksumKind::kXxh3, "xxh3-128", 16},
                           {ChecksumKind::kBlake3, "blake3", 32},
                           {ChecksumKind::kAdler32, "adler32", 4}};

const Kind& KindOf(ChecksumKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

}  // namespace

std::optional<ChecksumKind> ChecksumKindFromName(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.kind;
  }
  return std::nullopt;
}

std::string_view ChecksumKindName(ChecksumKind kind) { return KindOf(kind).name; }

std::string TensorChecksum::ToHex(ChecksumKind kind) const {
  return segue::ToHex(ByteSpan(bytes).first(KindOf(kind).size));
}

std::optional<TensorChecksum> TensorChecksum::FromHex(ChecksumKind kind, std::string_view text) {
  TensorChecksum checksum;
  if (!segue::FromHex(text, MutableByteSpan(checksum.bytes).first(KindOf(kind).size))) {
    return std::nullopt;
  }
  return checksum;
}

struct TensorHasher::State {
  ChecksumKind kind = ChecksumKind::kXxh3;
  XXH3_state_t* xxh3 = Allocated(XXH3_createState());
  Blake3Hasher blake3;
  uLong adler32 = 1;
  ~State() { XXH3_freeState(xxh3); }
};

TensorHasher::TensorHasher() : state_(std::make_unique<State>()) {}
TensorHasher::~TensorHasher() = default;
TensorHasher::TensorHasher(TensorHasher&&) noexcept = default;
TensorHasher& TensorHasher::operator=(TensorHasher&&) noexcept = default;

void TensorHasher::Start(ChecksumKind kind) {
  state_->kind = kind;
  switch (kind) {
    case ChecksumKind::kXxh3: SEGUE_CHECK(XXH3_128bits_reset(state_->xxh3) == XXH_OK); return;
    case ChecksumKind::kBlake3: state_->blake3 = Blake3Hasher(); return;
    case ChecksumKind::kAdler32: state_->adler32 = 1; return;
  }
}

void TensorHasher::Add(ByteSpan bytes) {
  // zlib gives the start value for a null pointer.
  if (bytes.empty()) return;
  switch (state_->kind) {
    case ChecksumKind::kXxh3:
      SEGUE_CHECK(XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size()) == XXH_OK);
      return;
    case ChecksumKind::kBlake3: state_->blake3.Add(bytes); return;
    case ChecksumKind::kAdler32:
      state_->adler32 =
          ::adler32_z(state_->adler32, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
      return;
  }
}

TensorChecksum TensorHasher::Finish() {
  TensorChecksum checksum;
  switch (state_->kind) {
    case ChecksumKind::kXxh3: {
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh3));
      std::memcpy(checksum.bytes.data(), canonical.digest, sizeof(canonical.digest));
      break;
    }
    case ChecksumKind::kBlake3: checksum.bytes = state_->blake3.Finish(); break;
    case ChecksumKind::kAdler32:
      for (unsigned i = 0; i < 4; ++i) {
        checksum.bytes[i] = static_cast<std::byte>(state_->adler32 >> (24 - 8 * i));
      }
      break;
  }
  return checksum;
}

TensorChecksum HashTensor(ChecksumKind kind, ByteSpan bytes) {
  TensorHasher hasher;
  hasher.Start(kind);
  hasher.Add(bytes);
  return hasher.Finish();
}

}  // namespace segue
