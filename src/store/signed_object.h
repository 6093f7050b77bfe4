// SPDX-License-Identifier: Apache-2.0
//
// Signed objects: JSON objects that end in a signature of all that stands before it and of the name
// they have in the store (docs/format.md, "Signatures"). One object, so that a signature cannot be
// missing where its object is, and exact bytes, so that nothing has to be made canonical.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/signature.h"
#include "segue/status.h"

namespace segue {

// Which objects are signed: those whose names end in ".json". Everything else is named by its hash
// in one of them.
bool IsSignedKind(std::string_view name);

// Whether `object` ends as a signed one does, by whatever key.
bool IsSigned(ByteSpan object);

// `json` with the signature as its last member. `json` is one JSON object with at least one member.
std::string SignObject(const SigningKey& key, std::string_view name, std::string_view json);

// Corruption, naming the object: not signed, or by none of `keys`, or as another object.
Status VerifyObject(std::span<const PublicKey> keys, std::string_view name, ByteSpan object);

}  // namespace segue
