// SPDX-License-Identifier: Apache-2.0
//
// Fleet: the store by its lineages, the engines all at once.
#include "segue/fleet.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/threads.h"
#include "segue/token.h"
#include "server/engine_client.h"
#include "store/signed_store.h"
#include "sync/acknowledge.h"
#include "sync/lineage.h"

namespace segue {
namespace {

// Engines that are asked at a time: dead ones cost seconds each.
constexpr unsigned kAskedAtOnceMax = 64;

Status ReadLineage(Store& store, LineageView& view) {
  SEGUE_ASSIGN_OR_RETURN(const LineageRecord record, Lineage::ReadRecord(store, view.lineage));
  SEGUE_ASSIGN_OR_RETURN(view.versions, Lineage::ListVersions(store, view.lineage));
  SEGUE_ASSIGN_OR_RETURN(view.anchors, store.ListFolders(object_name::AnchorFolders(view.lineage)));
  view.origin_version = view.newest = record.origin_version;
  view.digest = record.origin_digest.ToHex();
  if (view.versions.empty()) return {};
  view.newest = view.versions.back();
  SEGUE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(store, record, view.newest));
  view.digest = manifest.identity.target_digest.ToHex();
  view.model_bytes = manifest.model_bytes;
  view.changed_elements = manifest.identity.changed_elements;
  for (const PayloadEntry& payload : manifest.payloads) view.payload_bytes += payload.size;
  return {};
}

Status ReadStore(const FleetOptions& options, Store& store, FleetView& view) {
  std::vector<std::string> names = options.lineages;
  if (names.empty()) {
    SEGUE_ASSIGN_OR_RETURN(names, Lineage::ListLineages(store));
  }
  for (const std::string& name : names) {
    LineageView lineage;
    lineage.lineage = name;
    lineage.error = ReadLineage(store, lineage).message();
    view.lineages.push_back(std::move(lineage));
  }
  return {};
}

// What the store says of versions that engines hold, each read once for a view.
class KnownDigests {
 public:
  explicit KnownDigests(Store& store) : store_(store) {}

  Result<std::optional<std::string>> Find(const LineageView& lineage, std::uint64_t version) {
    if (version == lineage.newest) return std::optional(lineage.digest);
    const std::pair key(lineage.lineage, version);
    const auto known = digests_.find(key);
    if (known != digests_.end()) return known->second;
    return digests_.emplace(key, FindDigest(store_, lineage.lineage, version)).first->second;
  }

 private:
  Store& store_;
  std::map<std::pair<std::string, std::uint64_t>, Result<std::optional<std::string>>> digests_;
};

// A version that was pruned may have a digest that nobody knows any more: then its number counts.
void AddLag(const LineageView& lineage, KnownDigests& digests, LineageAtEngine& held) {
  if (!lineage.error.empty()) return;
  const auto digest = digests.Find(lineage, held.version);
  if (!digest.ok()) return;
  const bool in_range = lineage.origin_version <= held.version && held.version <= lineage.newest;
  held.is_other = !in_range || (digest.value() && *digest.value() != held.digest);
  held.lag_known = !held.is_other;
  if (held.lag_known) held.lag = lineage.newest - held.version;
}

void AddLags(Store& store, FleetView& view) {
  KnownDigests digests(store);
  for (EngineView& engine : view.engines) {
    for (LineageAtEngine& held : engine.lineages) {
      const auto lineage = std::ranges::find(view.lineages, held.lineage, &LineageView::lineage);
      if (lineage != view.lineages.end()) AddLag(*lineage, digests, held);
    }
  }
}

}  // namespace

Status WaitForEngines(const Cohort& cohort, const AwaitedVersion& awaited) {
  std::unique_ptr<Store> store;  // Only opened for an engine that is further.
  using Found = Result<std::optional<std::string>>;
  const auto digest_of = [&](std::uint64_t version) -> Found {
    if (version == awaited.version) return std::optional(awaited.digest);
    if (!store) {
      SEGUE_ASSIGN_OR_RETURN(auto opened, OpenStore(awaited.store, /*create=*/false));
      SEGUE_ASSIGN_OR_RETURN(store, WithKeys(std::move(opened), awaited.keys));
    }
    return FindDigest(*store, awaited.lineage, version);
  };
  return WaitForCohort(cohort, awaited.lineage, awaited.version, digest_of);
}

Result<FleetView> ReadFleet(const FleetOptions& options) {
  if (options.engines.size() > limits::kFleetEnginesMax) {
    return ResourceExhausted(std::to_string(options.engines.size()) + " engines, the limit is " +
                             std::to_string(limits::kFleetEnginesMax));
  }
  if (!options.token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(options.token));
  for (const std::string& engine : options.engines) {
    SEGUE_RETURN_IF_ERROR(CheckEngineUrl(engine));
  }
  FleetView view;
  std::unique_ptr<Store> store;
  Status read;
  if (!options.store.empty()) {
    Result<std::unique_ptr<Store>> opened = OpenStore(options.store, /*create=*/false);
    read = opened.status();
    // A later look would not find it otherwise.
    const bool is_wrong =
        read.code() == StatusCode::kInvalidArgument || read.code() == StatusCode::kUnsupported;
    if (is_wrong) return read;
    if (opened.ok()) {
      // Keys that cannot be read are no fault of the store.
      SEGUE_ASSIGN_OR_RETURN(store, WithKeys(std::move(opened).value(), options.keys));
    }
  }
  view.engines.resize(options.engines.size());
  const auto asked =
      static_cast<unsigned>(std::clamp<std::size_t>(options.engines.size(), 1, kAskedAtOnceMax));
  SEGUE_RETURN_IF_ERROR(ParallelFor(view.engines.size(), asked, [&](std::size_t i, unsigned) {
    view.engines[i] = AskEngine(options.engines[i], options.token);
    return Status();
  }));
  if (store) read = ReadStore(options, *store, view);
  if (store && read.ok()) AddLags(*store, view);
  view.store_error = read.message();
  return view;
}

}  // namespace segue
