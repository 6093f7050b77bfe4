// SPDX-License-Identifier: Apache-2.0
//
// Signed objects.
#include "store/signed_object.h"

#include <algorithm>

#include "base/check.h"

namespace segue {
namespace {

constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kContext = "segue-signature-1\n";
constexpr std::string_view kBefore = ",\n  \"signature\": \"";
constexpr std::string_view kAfter = "\"\n}\n";
constexpr std::size_t kHexSize = 128;
constexpr std::size_t kTailSize = kBefore.size() + kHexSize + kAfter.size();

// What is signed: never a valid object by itself, and never the same for two names.
std::string MessageOf(std::string_view name, std::string_view signed_part) {
  std::string message;
  message.reserve(kContext.size() + name.size() + 1 + signed_part.size());
  message.append(kContext).append(name).append("\n").append(signed_part);
  return message;
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

// What stands at the end of a signed object; nothing where there is no signature.
std::optional<Signature> SignatureIn(std::string_view text) {
  if (text.size() < kTailSize) return std::nullopt;
  const std::string_view tail = text.substr(text.size() - kTailSize);
  if (!tail.starts_with(kBefore) || !tail.ends_with(kAfter)) return std::nullopt;
  return Signature::FromHex(tail.substr(kBefore.size(), kHexSize));
}

}  // namespace

bool IsSigned(ByteSpan object) { return SignatureIn(AsText(object)).has_value(); }

bool IsSignedKind(std::string_view name) { return name.ends_with(kSuffix); }

std::string SignObject(const SigningKey& key, std::string_view name, std::string_view json) {
  std::string_view body = WithoutSpaceAtEnd(json);
  SEGUE_CHECK(!body.empty() && body.back() == '}');
  body = WithoutSpaceAtEnd(body.substr(0, body.size() - 1));
  SEGUE_CHECK(!body.empty() && body.back() != '{');
  const Signature signature = key.Sign(AsBytes(MessageOf(name, body)));
  return std::string(body).append(kBefore).append(signature.ToHex()).append(kAfter);
}

Status VerifyObject(std::span<const PublicKey> keys, std::string_view name, ByteSpan object) {
  const std::string what = "object '" + std::string(name) + "'";
  const std::string wanted = "; with public keys given, only what one of them (" +
                             std::to_string(keys.size()) + ") has signed is taken";
  const std::string_view text = AsText(object);
  const auto signature = SignatureIn(text);
  if (!signature) return Corruption(what + " is not signed" + wanted);
  const std::string message = MessageOf(name, text.substr(0, text.size() - kTailSize));
  const bool known = std::any_of(keys.begin(), keys.end(), [&](const PublicKey& key) {
    return key.Verify(AsBytes(message), *signature);
  });
  if (known) return {};
  return Corruption(what + " has a signature that is none of the given keys' for this object" +
                    wanted);
}

}  // namespace segue
