// SPDX-License-Identifier: Apache-2.0
//
// SignedStore: a store behind keys. Every JSON object that is read through it is signed by one of
// the keys, or the read fails; every one that is put is signed. So nobody above it has to think of
// signatures, and nothing that a manifest names is fetched before the manifest is believed.
#pragma once

#include <memory>

#include "segue/keys.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

// `store` itself where no key is named. InvalidArgument for keys that cannot be used.
Result<std::unique_ptr<Store>> WithKeys(std::unique_ptr<Store> store, const KeyFiles& keys);

// The same for who is going to write or delete. Without a key that signs, a signed object cannot be
// read (InvalidArgument): one unsigned object beside it, and nobody with a key reads the lineage.
Result<std::unique_ptr<Store>> WithWriterKeys(std::unique_ptr<Store> store, const KeyFiles& keys);

}  // namespace segue
