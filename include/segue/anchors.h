// SPDX-License-Identifier: Apache-2.0
//
// Anchors: named versions from which one delta leads to the newest. Publishing renews them; here
// they are looked at, set, moved and removed between two versions.
#pragma once

#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/publish.h"
#include "segue/status.h"

namespace segue {

struct AnchorOptions {
  std::string store = {};
  std::string lineage = "default";
  std::vector<AnchorWish> set = {};
  std::vector<std::string> remove = {};  // Names; NotFound for one that is not there.
  unsigned threads = 0;
  KeyFiles keys = {};  // Records that are set are signed with the one, and what is read is proven.
};

// The anchors of the lineage, by name, after what was asked for; with nothing asked for the store
// is only read. A failure leaves every anchor that was not reached as it was.
Result<std::vector<AnchorReport>> UpdateAnchors(const AnchorOptions& options);

}  // namespace segue
