// SPDX-License-Identifier: Apache-2.0
//
// SignedStore.
#include "store/signed_store.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "store/forwarding_store.h"
#include "store/signed_object.h"

namespace segue {
namespace {

// Keeps JSON until its name is known, which the signature covers; all else goes straight through.
class SigningWriter final : public StoreWriter {
 public:
  SigningWriter(std::unique_ptr<StoreWriter> inner, const SigningKey& key)
      : inner_(std::move(inner)), key_(key) {}

  Status Append(ByteSpan bytes) override {
    if (bytes.empty()) return {};
    if (!begun_) is_json_ = bytes.front() == std::byte{'{'};
    begun_ = true;
    if (!is_json_) return inner_->Append(bytes);
    if (json_.size() + bytes.size() > limits::kManifestSizeMax) {
      return ResourceExhausted("a JSON object of more than " +
                               std::to_string(limits::kManifestSizeMax) + " bytes is not signed");
    }
    json_.append(AsText(bytes));
    return {};
  }

  Result<PutOutcome> Commit(const std::string& name) override {
    if (IsSignedKind(name) != is_json_) {
      return Internal("object '" + name + "' is not of the kind that its name says");
    }
    if (is_json_) {
      SEGUE_RETURN_IF_ERROR(inner_->Append(AsBytes(SignObject(key_, name, json_))));
    }
    return inner_->Commit(name);
  }

 private:
  const std::unique_ptr<StoreWriter> inner_;
  const SigningKey& key_;
  bool begun_ = false;
  bool is_json_ = false;
  std::string json_;
};

class SignedStore final : public ForwardingStore {
 public:
  SignedStore(std::unique_ptr<Store> inner, std::optional<SigningKey> sign_key,
              std::vector<PublicKey> known)
      : ForwardingStore(std::move(inner)),
        sign_key_(std::move(sign_key)),
        known_(std::move(known)) {}

  Result<std::unique_ptr<StoreWriter>> StartWrite() override {
    SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<StoreWriter> writer, inner().StartWrite());
    if (!sign_key_) return writer;
    return std::unique_ptr<StoreWriter>(
        std::make_unique<SigningWriter>(std::move(writer), *sign_key_));
  }
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    SEGUE_ASSIGN_OR_RETURN(ByteVector bytes, inner().Get(name, size_max));
    if (IsSignedKind(name)) SEGUE_RETURN_IF_ERROR(VerifyObject(known_, name, bytes));
    return bytes;
  }
  // A part of a JSON object proves nothing, so the whole is read.
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override {
    if (!IsSignedKind(name)) return inner().GetRange(name, offset, size);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector whole, Get(name, limits::kManifestSizeMax));
    if (offset > whole.size() || size > whole.size() - offset) {
      return Corruption("object '" + name + "' ends before");
    }
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(offset);
    return ByteVector(begin, begin + static_cast<std::ptrdiff_t>(size));
  }

 private:
  const std::optional<SigningKey> sign_key_;
  const std::vector<PublicKey> known_;
};

// For writers that cannot sign: a lineage that is signed is not theirs.
class UnsignedStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    SEGUE_ASSIGN_OR_RETURN(ByteVector bytes, inner().Get(name, size_max));
    if (!IsSignedKind(name) || !IsSigned(bytes)) return bytes;
    return InvalidArgument(
        "object '" + name +
        "' is signed, and nothing unsigned may be added to its lineage: it takes "
        "the private key to write here (--sign-key, SEGUE_SIGN_KEY)");
  }
};

}  // namespace

Result<std::unique_ptr<Store>> WithWriterKeys(std::unique_ptr<Store> store, const KeyFiles& keys) {
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> proven, WithKeys(std::move(store), keys));
  if (!keys.sign_key.empty()) return proven;
  return std::unique_ptr<Store>(std::make_unique<UnsignedStore>(std::move(proven)));
}

Result<std::unique_ptr<Store>> WithKeys(std::unique_ptr<Store> store, const KeyFiles& keys) {
  if (keys.sign_key.empty() && keys.public_keys.empty()) return store;
  if (keys.public_keys.size() > limits::kPublicKeyCountMax) {
    return ResourceExhausted("at most " + std::to_string(limits::kPublicKeyCountMax) +
                             " public keys are looked at, " +
                             std::to_string(keys.public_keys.size()) + " are given");
  }
  std::optional<SigningKey> sign_key;
  std::vector<PublicKey> known;
  known.reserve(keys.public_keys.size() + 1);
  if (!keys.sign_key.empty()) {
    SEGUE_ASSIGN_OR_RETURN(sign_key, SigningKey::Load(keys.sign_key));
    known.push_back(sign_key->public_key());
  }
  for (const std::string& path : keys.public_keys) {
    SEGUE_ASSIGN_OR_RETURN(PublicKey key, PublicKey::Load(path));
    known.push_back(std::move(key));
  }
  return std::unique_ptr<Store>(
      std::make_unique<SignedStore>(std::move(store), std::move(sign_key), std::move(known)));
}

}  // namespace segue
