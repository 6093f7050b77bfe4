// SPDX-License-Identifier: Apache-2.0
//
// Anchor keeper: brings the anchors of a lineage to its newest version (docs/protocol.md, section
// 2, "Anchors"). Versions stay as they are whatever happens here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "delta/manifest.h"
#include "segue/publish.h"
#include "segue/status.h"
#include "store/store.h"
#include "sync/lineage.h"

namespace segue {

AnchorReport ReportOf(const AnchorRecord& record);

// Before a version is published: what of `wishes` could never be. `lineage`: null where the store
// has none of that name yet; `target`: the version that is about to be published, if one is.
Status CheckAnchorWishes(const Lineage* lineage, const std::vector<AnchorWish>& wishes,
                         std::optional<std::uint64_t> target);

class AnchorKeeper {
 public:
  // All outlive it. `lineage` is as the store has it now.
  AnchorKeeper(Store& store, const Lineage& lineage, unsigned threads)
      : store_(store), lineage_(lineage), threads_(threads) {}

  // Renews every anchor that is there and every one of `wishes`. Each that fails is a warning and
  // stays as it was. The anchors as they are afterwards, by name.
  std::vector<AnchorReport> RenewAll(const std::vector<AnchorWish>& wishes,
                                     std::vector<std::string>& warnings);
  // Makes the record that `wish` asks for, or finds it; what the anchor had before stays, since the
  // way of another may go over it. InvalidArgument, NotFound, VersionMismatch: there is no way.
  Result<AnchorRecord> Renew(const AnchorWish& wish);
  // After all are renewed: what the anchor had before, but for the last record of the same base.
  Status RemoveOthers(const AnchorRecord& kept);
  // All of it. NotFound.
  Status Remove(const std::string& name);

 private:
  Result<std::uint64_t> BaseOf(const AnchorWish& wish) const;
  Result<AnchorRecord> Make(const std::string& name, std::uint64_t base);
  Status Join(const Plan& plan, const std::vector<Manifest>& way, AnchorRecord& record);
  Status Upload(const std::string& path, PayloadEntry& payload);
  std::optional<std::uint64_t> TargetBefore(const AnchorRecord& kept) const;
  Status RemoveAllBut(const std::string& name, const AnchorRecord* kept);

  Store& store_;
  const Lineage& lineage_;
  const unsigned threads_;
};

}  // namespace segue
