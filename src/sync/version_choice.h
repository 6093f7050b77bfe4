// SPDX-License-Identifier: Apache-2.0
//
// Version choice: which versions a publish leads from and to (docs/protocol.md, section 2; cases D2
// and D5). The digests decide, so it is known only once base and target have been read.
#pragma once

#include <cstdint>
#include <string>

#include "delta/manifest.h"
#include "segue/publish.h"
#include "segue/status.h"
#include "sync/lineage.h"

namespace segue {

struct VersionChoice {
  std::uint64_t base = 0;
  std::uint64_t target = 0;
  bool already_published = false;  // `target` is a version with this very content.
  std::string warning;             // Empty where there is nothing to say.
};

// The same weights and files at both ends.
bool IsSameStep(const DeltaIdentity& a, const DeltaIdentity& b);
// Whether `found`, a version, has the content that `step` would give its number: it is that step,
// or `step` begins at that very version and changes nothing (a retry after it was published).
bool HasContentOf(const DeltaIdentity& found, const DeltaIdentity& step);

// What can be said before anything is read: a number that the lineage cannot take is refused.
// `lineage`: null where the store has none of that name yet.
Status CheckWantedVersion(const Lineage* lineage, const PublishOptions& options);

// `identity`: digests and layouts of the whole step, all owners together.
Result<VersionChoice> ChooseVersion(const Lineage* lineage, const PublishOptions& options,
                                    const DeltaIdentity& identity);

// The number is taken by other content.
Status VersionIsTaken(const DeltaIdentity& found, const DeltaIdentity& identity);

}  // namespace segue
