// SPDX-License-Identifier: Apache-2.0
//
// Manifest, anchor, lineage and owner record: the small JSON objects of docs/format.md, sections 7
// and 8. Parsing is strict (types, ranges, duplicate keys, sizes); writing is deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/hash.h"
#include "segue/status.h"

namespace segue {

struct PayloadEntry {
  std::uint32_t owner = 0;
  std::string object;  // Name in the store.
  std::uint64_t size = 0;
  Sha256 sha256;
  std::uint64_t rows = 0;

  bool operator==(const PayloadEntry&) const = default;
};

// What one delta starts from and yields; shared by manifest and owner record.
struct DeltaIdentity {
  std::string lineage;
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  Sha256 plan;
  Sha256 base_layout;
  Sha256 target_layout;
  Digest base_digest;  // Owner record: over the tensors that the owner covers.
  Digest target_digest;
  std::string profile;
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_elements = 0;

  bool operator==(const DeltaIdentity&) const = default;
};

struct Manifest {
  DeltaIdentity identity;
  std::uint64_t model_bytes = 0;
  std::vector<PayloadEntry> payloads;

  bool operator==(const Manifest&) const = default;

  // JSON with a final newline; ParseManifest(ToJson()) gives the same manifest back.
  std::string ToJson() const;
  // `name`: what to call it in messages.
  static Result<Manifest> Parse(ByteSpan json, const std::string& name);
};

// A named version and the delta from it to a later one. Base and target may be the same version;
// then there are no payloads.
struct AnchorRecord {
  std::string anchor;  // Named as lineages are.
  Manifest manifest;

  bool operator==(const AnchorRecord&) const = default;
  bool leads_on() const { return !manifest.payloads.empty(); }
  std::string ToJson() const;
  static Result<AnchorRecord> Parse(ByteSpan json, const std::string& name);
};

struct LineageRecord {
  std::string lineage;
  std::uint64_t origin_version = 0;
  Digest origin_digest;
  Sha256 plan;
  Sha256 layout;

  bool operator==(const LineageRecord&) const = default;
  std::string ToJson() const;
  static Result<LineageRecord> Parse(ByteSpan json, const std::string& name);
};

struct OwnerRecord {
  DeltaIdentity identity;
  std::uint32_t owner_count = 1;
  PayloadEntry payload;
  std::string tensors;  // TensorSet::ToHex() of what it covers; empty: its share of the chunks.
  std::string round;    // That it was handed in to; empty: the session says what belongs together.

  bool operator==(const OwnerRecord&) const = default;
  std::string ToJson() const;
  static Result<OwnerRecord> Parse(ByteSpan json, const std::string& name);
};

// Lineage names: 1 to limits::kLineageNameSizeMax of [A-Za-z0-9._-], not beginning with '.' (case
// B5).
Status CheckLineageName(std::string_view name);

// Object names of docs/format.md, section 8.
namespace object_name {
std::string Lineage(std::string_view lineage);
std::string Plan(std::string_view lineage, const Sha256& digest);
std::string Layout(std::string_view lineage, const Sha256& digest);
std::string VersionFolder(std::string_view lineage);
std::string Version(std::string_view lineage, std::uint64_t version);
// Says that the number has been used and its version pruned.
std::string Gone(std::string_view lineage, std::uint64_t version);
// One folder a version in each of these, named as PayloadFolder() and OwnerFolder() do.
std::string PayloadFolders(std::string_view lineage);
std::string OwnerFolders(std::string_view lineage);
std::string PayloadFolder(std::string_view lineage, std::uint64_t version);
std::string Payload(std::string_view lineage, std::uint64_t version, std::uint32_t owner,
                    std::uint32_t owner_count, const Sha256& sha256);
std::string OwnerFolder(std::string_view lineage, std::uint64_t version, std::string_view session);
// Without a round: empty.
std::string Owner(std::string_view lineage, std::uint64_t version, std::string_view session,
                  std::uint32_t owner, std::uint32_t owner_count, std::string_view round = {});
// Says that owner 0 collects what is handed in to this round.
std::string Round(std::string_view lineage, std::uint64_t version, std::string_view session,
                  std::string_view round);
// What a round is called; `number` is drawn at random.
std::string RoundName(std::uint64_t number);
// "00000000000000ab.round" -> "00000000000000ab"; nothing for any other name.
std::optional<std::string> ParseRound(std::string_view name);
// One folder an anchor in this one, named as the anchor is.
std::string AnchorFolders(std::string_view lineage);
std::string AnchorFolder(std::string_view lineage, std::string_view anchor);
std::string Anchor(std::string_view lineage, std::string_view anchor, std::uint64_t base,
                   std::uint64_t target);
// The payloads of one record.
std::string AnchorPayloadFolder(std::string_view lineage, std::string_view anchor,
                                std::uint64_t base, std::uint64_t target);
std::string AnchorPayload(std::string_view lineage, std::string_view anchor, std::uint64_t base,
                          std::uint64_t target, const Sha256& sha256);
// "0000000012-0000000040.json" -> {12, 40}; nothing for any other name.
std::optional<std::pair<std::uint64_t, std::uint64_t>> ParseAnchor(std::string_view name);
// "0000000012.json" -> 12; nothing for any other name.
std::optional<std::uint64_t> ParseVersion(std::string_view name);
// "0000000012.gone" -> 12; nothing for any other name.
std::optional<std::uint64_t> ParseGone(std::string_view name);
// "0000000012" -> 12; nothing for any other name.
std::optional<std::uint64_t> ParseVersionFolder(std::string_view name);
}  // namespace object_name

}  // namespace segue
