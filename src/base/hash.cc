// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 through OpenSSL's EVP interface, which picks the processor's SHA instructions.
#include "base/hash.h"

#include <openssl/evp.h>

#include "base/allocated.h"
#include "base/check.h"

namespace segue {

struct Sha256Hasher::State {
  EVP_MD_CTX* context = Allocated(EVP_MD_CTX_new());
  ~State() { EVP_MD_CTX_free(context); }
};

std::optional<Sha256> Sha256::FromHex(std::string_view text) {
  Sha256 hash;
  if (!segue::FromHex(text, hash.bytes)) return std::nullopt;
  return hash;
}

Sha256Hasher::Sha256Hasher() : state_(std::make_unique<State>()) {
  const bool began = EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1;
  (void)Allocated(began ? state_->context : nullptr);  // Fails for want of memory alone.
}
Sha256Hasher::~Sha256Hasher() = default;
Sha256Hasher::Sha256Hasher(Sha256Hasher&&) noexcept = default;
Sha256Hasher& Sha256Hasher::operator=(Sha256Hasher&&) noexcept = default;

void Sha256Hasher::Add(ByteSpan bytes) {
  SEGUE_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

Sha256 Sha256Hasher::Finish() {
  Sha256 hash;
  unsigned size = 0;
  auto* target = reinterpret_cast<unsigned char*>(hash.bytes.data());
  SEGUE_CHECK(EVP_DigestFinal_ex(state_->context, target, &size) == 1 && size == 32);
  return hash;
}

Sha256 HashSha256(ByteSpan bytes) {
  Sha256Hasher hasher;
  hasher.Add(bytes);
  return hasher.Finish();
}

}  // namespace segue
