// SPDX-License-Identifier: Apache-2.0
//
// Version commit: from an encoded payload to a visible version (docs/protocol.md, section 2, steps
// 4 to 6). The order is the point: everything durable before the manifest, the manifest last, and
// no number used twice. Publish from files and Publisher from buffers both end here.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/manifest.h"
#include "delta/tensor_set.h"
#include "segue/publish.h"
#include "segue/status.h"
#include "store/store.h"
#include "sync/environment.h"
#include "sync/lineage.h"

namespace segue {

// InvalidArgument for options that no publish can take: names, profile, numbers, owners.
Status CheckPublishOptions(const PublishOptions& options);

// One owner's part of a version that is to be.
struct PendingVersion {
  DeltaIdentity identity;  // Digests and counts of this owner alone; versions are a first guess.
  PayloadEntry payload;    // `object` is given at the commit.
  std::unique_ptr<StoreWriter> writer;    // Holds the payload until it has a name.
  const Layout* base_layout = nullptr;    // Null: the store has it.
  const Layout* target_layout = nullptr;  // The same.
  // What this owner of several covers. Null: its share of the chunks.
  const TensorSet* tensors = nullptr;
  // Of all owners, where they have settled on it: then `identity.base_digest` and `target_digest`
  // of the version are these, whoever makes it visible.
  std::optional<std::pair<Digest, Digest>> whole;

  void SetPayload(std::uint32_t owner, const PayloadSummary& summary, Digest base_digest,
                  Digest target_digest);
};

class VersionCommit {
 public:
  // All outlive it. `lineage`: null where the store has none of that name yet.
  VersionCommit(Store& store, const Lineage* lineage, const Plan& plan,
                const PublishOptions& options, PublishReport& report,
                Environment& environment = SystemEnvironment())
      : store_(store),
        lineage_(lineage),
        plan_(plan),
        options_(options),
        report_(report),
        environment_(environment) {}

  // The numbers that the version takes as far as they can be known before anything is encoded.
  Status ChooseNumbers(DeltaIdentity& identity) const;
  // What all owners know alike once `pending.whole` is known: fails where the version cannot be
  // made; fills the report and returns true where it is there already.
  Result<bool> IsThereAlready(const PendingVersion& pending);
  // Whether a version of the number that is wanted was there when this publish began.
  bool WasThere() const;
  // Owner 0: gathers what the others have and makes the version visible; other owners hand in what
  // they have, and wait for the version. Fills the report;
  // `pending.identity` says what it has become.
  Status Run(PendingVersion& pending);
  // Makes the payload durable, under its name; Run does it where that has not been done.
  Status CommitPayload(PendingVersion& pending);
  // After a version has become visible: renews anchors, prunes, and removes temporaries that were
  // left. What fails is a warning.
  void CleanUp(const PendingVersion& pending);

 private:
  Status HandIn(PendingVersion& pending);
  Status MakeVisible(PendingVersion& pending);
  Status PutObject(const std::string& name, ByteSpan bytes);
  Status PutPlanAndLayouts(const PendingVersion& pending);
  Status PutLayout(const Layout* layout);
  Status PutLineage(const DeltaIdentity& identity);
  Status PutManifest(const Manifest& manifest);
  Status CheckNotGone(const DeltaIdentity& identity);
  LineageRecord RecordFor(const DeltaIdentity& identity) const;
  void RenewAnchors();
  void FillReport(const DeltaIdentity& identity, std::uint64_t payload_bytes);
  // Of a version that was there before.
  void FillReportOf(const Manifest& manifest);

  Store& store_;
  const Lineage* lineage_;
  const Plan& plan_;
  const PublishOptions& options_;
  PublishReport& report_;
  Environment& environment_;
};

}  // namespace segue
