// SPDX-License-Identifier: Apache-2.0
//
// Keys: which Ed25519 keys sign what is published and are believed by those who read it. PEM files
// as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` make them. docs/format.md,
// "Signatures", says what a signature covers.
#pragma once

#include <string>
#include <vector>

namespace segue {

struct KeyFiles {
  // Private; nobody but its owner may read the file. Signs every JSON object that is put; its
  // public half is believed too. Empty: nothing is signed.
  std::string sign_key = {};
  // Public. With any key given, a JSON object that none of them has signed is refused (Corruption)
  // before anything that it names is fetched. Without any, signatures are not looked at.
  std::vector<std::string> public_keys = {};
};

}  // namespace segue
