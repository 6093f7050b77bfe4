// SPDX-License-Identifier: Apache-2.0
//
// Ed25519 through OpenSSL's EVP interface.
#include "base/signature.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <utility>

#include "base/allocated.h"
#include "base/check.h"
#include "base/file.h"
#include "base/limits.h"

namespace segue {

struct KeyState {
  EVP_PKEY* key = nullptr;

  explicit KeyState(EVP_PKEY* taken) : key(taken) {}
  ~KeyState() { EVP_PKEY_free(key); }
  KeyState(const KeyState&) = delete;
  KeyState& operator=(const KeyState&) = delete;
};

namespace {

// No password is ever asked for on a terminal.
int NoPassword(char*, int, int, void*) { return 0; }

using ReadKey = EVP_PKEY* (*)(BIO*, EVP_PKEY**, pem_password_cb*, void*);

Result<std::shared_ptr<const KeyState>> LoadKey(const std::string& path, const char* kind,
                                                ReadKey read) {
  SEGUE_ASSIGN_OR_RETURN(const ByteVector text, ReadFile(path, limits::kKeyFileSizeMax));
  const std::unique_ptr<BIO, int (*)(BIO*)> source(
      Allocated(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))), &BIO_free);
  auto state = std::make_shared<const KeyState>(read(source.get(), nullptr, &NoPassword, nullptr));
  if (state->key != nullptr && EVP_PKEY_id(state->key) == EVP_PKEY_ED25519) return state;
  return InvalidArgument("'" + path + "' is no Ed25519 " + kind +
                         " key in an unencrypted PEM file");
}

// Of what one key does to one message.
class Context {
 public:
  Context() = default;
  ~Context() { EVP_MD_CTX_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_MD_CTX* get() { return context_; }

 private:
  EVP_MD_CTX* const context_ = Allocated(EVP_MD_CTX_new());
};

const unsigned char* Raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

std::optional<Signature> Signature::FromHex(std::string_view text) {
  Signature signature;
  if (!segue::FromHex(text, signature.bytes)) return std::nullopt;
  return signature;
}

Result<PublicKey> PublicKey::Load(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(auto state, LoadKey(path, "public", &PEM_read_bio_PUBKEY));
  return PublicKey(std::move(state));
}

bool PublicKey::Verify(ByteSpan message, const Signature& signature) const {
  Context context;
  return EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, state_->key) == 1 &&
         EVP_DigestVerify(context.get(), Raw(signature.bytes.data()), signature.bytes.size(),
                          Raw(message.data()), message.size()) == 1;
}

Result<SigningKey> SigningKey::Load(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus("look at the key", path);
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return InvalidArgument("the private key '" + path +
                           "' may be used by others than its owner: chmod 600 it");
  }
  SEGUE_ASSIGN_OR_RETURN(auto state, LoadKey(path, "private", &PEM_read_bio_PrivateKey));
  return SigningKey(std::move(state));
}

Signature SigningKey::Sign(ByteSpan message) const {
  Context context;
  Signature signature;
  std::size_t size = signature.bytes.size();
  auto* const target = reinterpret_cast<unsigned char*>(signature.bytes.data());
  SEGUE_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, state_->key) == 1);
  SEGUE_CHECK(EVP_DigestSign(context.get(), target, &size, Raw(message.data()), message.size()) ==
                  1 &&
              size == signature.bytes.size());
  return signature;
}

}  // namespace segue
