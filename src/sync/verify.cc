// SPDX-License-Identifier: Apache-2.0
//
// Verify: which version a checkpoint is, by its bytes; or whether two checkpoints agree.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/threads.h"
#include "delta/applier.h"
#include "delta/encoder.h"
#include "segue/inspect.h"
#include "store/signed_store.h"
#include "store/store.h"
#include "sync/checkpoint_state.h"
#include "sync/lineage.h"
#include "sync/stopwatch.h"

namespace segue {
namespace {

Status CompareBytes(const Plan& plan, const Checkpoint& a, const Checkpoint& b,
                    const VerifyOptions& options) {
  return ParallelFor(
      plan.chunk_count(), options.threads, [&](std::size_t chunk, unsigned) -> Status {
        const ChunkPlace place = plan.Chunk(chunk);
        const std::byte* left = a.TensorBytes(place.tensor).data() + place.offset;
        const std::byte* right = b.TensorBytes(place.tensor).data() + place.offset;
        if (std::memcmp(left, right, place.size) == 0) return {};
        const auto differs = std::mismatch(left, left + place.size, right).first - left;
        return VersionMismatch(DescribeChunk(plan, chunk) + ": byte " +
                               std::to_string(place.offset + static_cast<std::uint64_t>(differs)) +
                               " of the tensor differs between '" + options.checkpoint + "' and '" +
                               options.against + "'");
      });
}

Status VerifyAgainst(const Plan& plan, const Checkpoint& checkpoint, const VerifyOptions& options,
                     VerifyReport& report) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint other, Checkpoint::Open(options.against));
  SEGUE_ASSIGN_OR_RETURN(const Plan other_plan, Plan::FromCheckpoint(other, plan.chunk_size()));
  SEGUE_RETURN_IF_ERROR(ComparePlans(plan, other_plan, options.checkpoint, options.against));
  SEGUE_RETURN_IF_ERROR(CompareBytes(plan, checkpoint, other, options));
  const Sha256 layout = Layout::FromCheckpoint(checkpoint).digest();
  report.layout_matches = (options.store.empty() || report.layout_matches) &&
                          layout == Layout::FromCheckpoint(other).digest();
  return {};
}

Status VerifyVersion(const Lineage& lineage, const Checkpoint& checkpoint, const Digest& digest,
                     const VerifyOptions& options, VerifyReport& report) {
  const std::uint64_t version_max = options.version.value_or(UINT64_MAX);
  report.version = lineage.FindVersion(digest, version_max);
  if (options.version) {
    SEGUE_ASSIGN_OR_RETURN(const VersionFacts expected, lineage.Require(*options.version));
    if (expected.digest != digest) {
      return VersionMismatch("checkpoint '" + options.checkpoint + "' has digest " +
                             digest.ToHex() + ", version " + std::to_string(*options.version) +
                             " has " + expected.digest.ToHex());
    }
    report.version = options.version;
  }
  if (!report.version) {
    return VersionMismatch("checkpoint '" + options.checkpoint + "' has digest " + digest.ToHex() +
                           ", which is no version of lineage '" + lineage.record().lineage +
                           "'; held against a full copy (--against DIR) the tensors that differ " +
                           "are named");
  }
  report.layout_matches =
      Layout::FromCheckpoint(checkpoint).digest() == lineage.Version(*report.version)->layout;
  return {};
}

}  // namespace

Result<VerifyReport> Verify(const VerifyOptions& options) {
  Stopwatch watch;
  VerifyReport report;
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  report.warnings = checkpoint.warnings();
  SEGUE_ASSIGN_OR_RETURN(const auto state, ReadState(checkpoint.directory()));
  std::optional<Lineage> lineage;
  std::uint64_t chunk_size = limits::kChunkSizeDefault;
  if (!options.store.empty()) {
    SEGUE_ASSIGN_OR_RETURN(auto opened, OpenStore(options.store, /*create=*/false));
    SEGUE_ASSIGN_OR_RETURN(const auto store, WithKeys(std::move(opened), options.keys));
    const std::string name = ChooseLineage(options.lineage, state);
    SEGUE_ASSIGN_OR_RETURN(lineage, Lineage::Open(*store, name));
    SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage->ReadPlan(*store));
    chunk_size = known.chunk_size();
  }
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(checkpoint, chunk_size));
  if (options.progress) options.progress("digest", 0, plan.model_size());
  const Digest digest = DigestModel(plan, ViewOf(checkpoint), options.threads);
  report.digest = digest.ToHex();
  report.plan = plan.digest().ToHex();
  report.model_bytes = plan.model_size();
  if (lineage) {
    SEGUE_RETURN_IF_ERROR(VerifyVersion(*lineage, checkpoint, digest, options, report));
  }
  if (!options.against.empty()) {
    SEGUE_RETURN_IF_ERROR(VerifyAgainst(plan, checkpoint, options, report));
  }
  if (report.layout_matches) {
    for (const Shard& shard : checkpoint.shards()) report.files.push_back(shard.name);
    if (!checkpoint.index_json().empty()) report.files.emplace_back(kIndexFileName);
  }
  report.seconds = watch.Lap();
  return report;
}

}  // namespace segue
