// SPDX-License-Identifier: Apache-2.0
//
// Ed25519 signatures (RFC 8032, by OpenSSL) and their keys in PEM files. Knows bytes, no objects
// and no JSON.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

struct Signature {
  std::array<std::byte, 64> bytes{};

  bool operator==(const Signature&) const = default;
  std::string ToHex() const { return segue::ToHex(bytes); }
  // Exactly 128 lower-case digits, or nothing.
  static std::optional<Signature> FromHex(std::string_view text);
};

// What OpenSSL has of a key.
struct KeyState;

// Thread-safe; copies share the key.
class PublicKey {
 public:
  // InvalidArgument where the file is no PEM file with one Ed25519 public key.
  static Result<PublicKey> Load(const std::string& path);
  bool Verify(ByteSpan message, const Signature& signature) const;

 private:
  friend class SigningKey;
  explicit PublicKey(std::shared_ptr<const KeyState> state) : state_(std::move(state)) {}
  std::shared_ptr<const KeyState> state_;
};

class SigningKey {
 public:
  // InvalidArgument where the file is no PEM file with an Ed25519 private key, is encrypted, or may
  // be read or written by others than its owner.
  static Result<SigningKey> Load(const std::string& path);
  Signature Sign(ByteSpan message) const;
  PublicKey public_key() const { return PublicKey(state_); }

 private:
  explicit SigningKey(std::shared_ptr<const KeyState> state) : state_(std::move(state)) {}
  std::shared_ptr<const KeyState> state_;
};

}  // namespace segue
