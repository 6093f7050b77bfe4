// SPDX-License-Identifier: Apache-2.0
//
// Fleet: the store by its lineages, the engines all at once.
#include "segue/fleet.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "base/threads.h"
#include "segue/token.h"
#include "server/engine_client.h"
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

void AddLag(const FleetView& view, EngineView& engine) {
  for (const LineageView& lineage : view.lineages) {
    if (!engine.reachable || lineage.lineage != engine.lineage || !lineage.error.empty()) continue;
    const auto newer =
        std::upper_bound(lineage.versions.begin(), lineage.versions.end(), engine.version);
    engine.lag_known = true;
    engine.lag = static_cast<std::uint64_t>(lineage.versions.end() - newer);
  }
}

}  // namespace

Status WaitForEngines(const Cohort& cohort, const std::string& lineage, std::uint64_t version) {
  return WaitForCohort(cohort, lineage, version);
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
    if (opened.ok()) store = std::move(opened).value();
  }
  view.engines.resize(options.engines.size());
  const auto asked =
      static_cast<unsigned>(std::clamp<std::size_t>(options.engines.size(), 1, kAskedAtOnceMax));
  SEGUE_RETURN_IF_ERROR(ParallelFor(view.engines.size(), asked, [&](std::size_t i, unsigned) {
    view.engines[i] = AskEngine(options.engines[i], options.token);
    return Status();
  }));
  if (store) read = ReadStore(options, *store, view);
  view.store_error = read.message();
  for (EngineView& engine : view.engines) AddLag(view, engine);
  return view;
}

}  // namespace segue
