// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: an object that claims to be signed. Nothing that is found may be taken: the key is
// not known to whoever makes inputs, but the golden one that the corpus begins with is signed.
#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "store/signed_object.h"

namespace segue {
namespace {

constexpr char kName[] = "run/versions/0000000007.json";
constexpr char kKey[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=\n"
    "-----END PUBLIC KEY-----\n";

const PublicKey& Key() {
  static const PublicKey key = [] {
    std::string path = "/tmp/segue_fuzz_key_XXXXXX";
    const int descriptor = ::mkstemp(path.data());
    SEGUE_CHECK(descriptor >= 0 && WriteFileAtomic(path, AsBytes(kKey)).ok());
    PublicKey loaded = PublicKey::Load(path).value();
    SEGUE_CHECK(RemoveFile(path).ok());
    return loaded;
  }();
  return key;
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto object = std::as_bytes(std::span(data, size));
  const segue::Status status =
      segue::VerifyObject(std::span(&segue::Key(), 1), segue::kName, object);
  // What is taken ends as every signed object does.
  if (status.ok() && !segue::AsText(object).ends_with("\"\n}\n")) std::abort();
  return 0;
}
