// SPDX-License-Identifier: Apache-2.0
//
// NamingDiffering: chunk by chunk against the rows of a delta's table.
#include "live/name_differing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "delta/live_scan.h"
#include "delta/manifest.h"
#include "delta/payload_table.h"
#include "sync/lineage.h"

namespace segue {
namespace {

constexpr std::size_t kNamedMax = 4;

// Tensors as they are at a version, as far as the delta to `delta` tells.
struct Comparison {
  std::uint64_t version = 0;
  std::uint64_t delta = 0;
  std::vector<std::uint32_t> alike;
  std::vector<std::uint32_t> differing;
};

// A delta's table, without the frames before it.
Result<PayloadTable> FetchTable(Store& store, const PayloadEntry& payload, const Plan& plan) {
  if (payload.size < kPreludeSize + kTrailerSize) return Corruption("a payload has no table");
  SEGUE_ASSIGN_OR_RETURN(const ByteVector end,
                         store.GetRange(payload.object, payload.size - kTrailerSize, kTrailerSize));
  if (end.size() != kTrailerSize) return Corruption("a payload ends early");
  SEGUE_ASSIGN_OR_RETURN(const Trailer trailer, Trailer::Parse(end, payload.size, plan));
  // A frame of what cannot be compressed is a little larger than that.
  if (trailer.table_size > 2 * trailer.table_inner_size + limits::kManifestSizeMax) {
    return Corruption("a payload's table is too large");
  }
  SEGUE_ASSIGN_OR_RETURN(const ByteVector table,
                         store.GetRange(payload.object, trailer.table_offset, trailer.table_size));
  if (table.size() != trailer.table_size) return Corruption("a payload's table ends early");
  return ReadTable(trailer, table, plan);
}

class Comparer {
 public:
  Comparer(const LiveWeights& weights, const std::stop_token& stop)
      : weights_(weights), stop_(stop) {}

  // With the versions before and after a delta.
  Status Add(Store& store, const Manifest& step) {
    std::map<std::uint32_t, Seen> seen;
    for (const PayloadEntry& payload : step.payloads) {
      SEGUE_ASSIGN_OR_RETURN(const PayloadTable table, FetchTable(store, payload, weights_.plan()));
      for (const ChunkRow& row : table.rows) SEGUE_RETURN_IF_ERROR(AddRow(row, seen));
    }
    Comparison before{step.identity.base_version, step.identity.target_version, {}, {}};
    Comparison after{step.identity.target_version, step.identity.target_version, {}, {}};
    for (const auto& [tensor, as] : seen) {
      (as.before ? before.alike : before.differing).push_back(tensor);
      (as.after ? after.alike : after.differing).push_back(tensor);
    }
    if (!seen.empty()) found_.insert(found_.end(), {before, after});
    return {};
  }

  // The version from which the fewest tensors differ.
  std::optional<Comparison> Nearest() const {
    const auto nearest = std::ranges::min_element(
        found_, {}, [](const Comparison& one) { return one.differing.size(); });
    return nearest == found_.end() ? std::nullopt : std::optional(*nearest);
  }

 private:
  struct Seen {
    bool before = true;
    bool after = true;
  };

  Status AddRow(const ChunkRow& row, std::map<std::uint32_t, Seen>& seen) {
    const std::uint32_t tensor = weights_.plan().Chunk(row.chunk).tensor;
    if (!weights_.map().HoldsAll(tensor)) return {};
    SEGUE_ASSIGN_OR_RETURN(const Digest found, DigestOf(row.chunk));
    Seen& as = seen[tensor];
    as.before = as.before && found == row.before;
    as.after = as.after && found == row.after;
    return {};
  }

  Result<Digest> DigestOf(std::uint64_t chunk) {
    if (stop_.stop_requested()) return Unavailable("stopped");
    ChunkScanner scanner(weights_.plan(), weights_.map());
    SEGUE_RETURN_IF_ERROR(weights_.Read([&] { return scanner.Add(chunk).status(); }));
    return scanner.digest().sums.counted.first;
  }

  const LiveWeights& weights_;
  const std::stop_token& stop_;
  std::vector<Comparison> found_;
};

std::string Count(std::size_t count, const std::string& of) {
  return std::to_string(count) + " tensor" + (count == 1 ? "" : "s") + of;
}

std::string Names(const Plan& plan, const std::vector<std::uint32_t>& tensors) {
  std::vector<std::string> names;
  for (const std::uint32_t tensor : tensors) names.push_back(plan.tensors()[tensor].spec.name);
  return QuotedNames(names, kNamedMax);
}

std::string Describe(const Plan& plan, const Comparison& found) {
  const std::string changes = " that version " + std::to_string(found.delta) + " changes";
  const std::string version = "version " + std::to_string(found.version);
  const std::size_t compared = found.alike.size() + found.differing.size();
  if (!found.differing.empty()) {
    return "; of " + Count(compared, changes) + ", these differ from " + version + ": " +
           Names(plan, found.differing);
  }
  std::vector<std::uint32_t> others;
  for (std::uint32_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    if (!std::ranges::binary_search(found.alike, tensor)) others.push_back(tensor);
  }
  return "; " + Count(compared, changes) + (compared == 1 ? " is" : " are") + " as in " + version +
         ", so that it is others that differ: of " + Names(plan, others);
}

// Empty where it cannot be told.
std::string Sentence(Store& store, const std::string& name, const LiveWeights& weights,
                     const std::stop_token& stop) {
  auto lineage = Lineage::OpenIfThere(store, name);
  if (!lineage.ok() || !*lineage) return "";
  const auto& manifests = (*lineage)->manifests();
  if (manifests.empty() || (*lineage)->record().plan != weights.plan().digest()) return "";
  // A delta that changes nothing tells nothing.
  const auto tells = [](const auto& entry) { return entry.second.identity.changed_chunks != 0; };
  const auto oldest = std::ranges::find_if(manifests, tells);
  if (oldest == manifests.end()) return "";
  const auto newest = std::find_if(manifests.rbegin(), manifests.rend(), tells);
  Comparer comparer(weights, stop);
  if (!comparer.Add(store, oldest->second).ok()) return "";
  if (newest->first != oldest->first && !comparer.Add(store, newest->second).ok()) return "";
  const auto nearest = comparer.Nearest();
  return nearest ? Describe(weights.plan(), *nearest) : "";
}

}  // namespace

Status NamingDiffering(const Status& failure, Store& store, const std::string& lineage,
                       const LiveWeights& weights, const std::stop_token& stop) {
  if (failure.code() != StatusCode::kVersionMismatch) return failure;
  return VersionMismatch(failure.message() + Sentence(store, lineage, weights, stop));
}

}  // namespace segue
