// SPDX-License-Identifier: Apache-2.0
//
// Pull: docs/protocol.md, section 14. What a crash has left is ended first; then everything is
// staged and proven; then there is one journal, or one reset, that can only go forward.
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/threads.h"
#include "delta/delta_builder.h"
#include "delta/encoder.h"
#include "device/host/kernels.h"
#include "interop/checkpoint_reset.h"
#include "interop/delta_chain.h"
#include "interop/disk_source.h"
#include "interop/path_roots.h"
#include "interop/weight_sync.h"
#include "segue/disk_delta.h"
#include "sync/checkpoint_state.h"
#include "sync/in_place.h"
#include "sync/resolve.h"

namespace segue {
namespace {

// Lineage in the journal and in Segue's own state file of a checkpoint that is pulled.
constexpr char kPullLineage[] = "disk-delta";

// Digest of the tensors that are not in `without`.
Result<Digest> DigestRest(const Plan& plan, const Checkpoint& checkpoint,
                          const std::vector<std::uint32_t>& without, unsigned threads) {
  std::vector<bool> left_out(plan.tensors().size());
  for (const std::uint32_t tensor : without) left_out[tensor] = true;
  Digest sum;
  std::mutex mutex;
  SEGUE_RETURN_IF_ERROR(
      ParallelFor(plan.chunk_count(), threads, [&](std::size_t chunk, unsigned) -> Status {
        const ChunkPlace place = plan.Chunk(chunk);
        if (left_out[place.tensor]) return {};
        const ByteSpan bytes =
            checkpoint.TensorBytes(place.tensor).subspan(place.offset, place.size);
        const host::ChunkKey key = {place.tensor, place.offset / kDigestBlockSize};
        const Digest digest = host::ActiveKernels().digest(key, bytes.data(), bytes.size());
        const std::lock_guard lock(mutex);
        sum += digest;
        return {};
      }));
  return sum;
}

class Pull {
 public:
  explicit Pull(const PullOptions& options) : options_(options), target_(options.target_version) {}

  // Messages name paths as people write them.
  Result<PullReport> Run() {
    Result<PullReport> report = Work();
    if (!report.ok()) return roots_.Reveal(report.status());
    for (std::string& warning : report->warnings) warning = roots_.Reveal(std::move(warning));
    return report;
  }

 private:
  Result<PullReport> Work() {
    SEGUE_RETURN_IF_ERROR(CheckRequest());
    // Before anything is made: whether there is a way at all.
    if (!FileExists(local_)) SEGUE_RETURN_IF_ERROR(FindStart());
    SEGUE_RETURN_IF_ERROR(MakeDirectories(local_));
    SEGUE_ASSIGN_OR_RETURN(const WeightSyncLock lock, WeightSyncLock::Acquire(local_));
    SEGUE_ASSIGN_OR_RETURN(const CheckpointLock own_lock, CheckpointLock::Acquire(local_));
    SEGUE_RETURN_IF_ERROR(Recover());
    report_.from = held_;
    report_.version = target_;
    if (held_ == target_) return std::move(report_);
    if (held_ && *held_ > target_) {
      return VersionMismatch("'" + local_ + "' is at version " + std::to_string(*held_) +
                             ", after version " + std::to_string(target_) +
                             ": Segue only goes forward");
    }
    SEGUE_RETURN_IF_ERROR(FindStart());
    SEGUE_RETURN_IF_ERROR(report_.reset ? Reset() : Advance());
    return std::move(report_);
  }

  Status CheckRequest() {
    if (target_ > limits::kDiskDeltaVersionMax) {
      return InvalidArgument("version " + std::to_string(target_) + " is over the limit of " +
                             std::to_string(limits::kDiskDeltaVersionMax));
    }
    SEGUE_ASSIGN_OR_RETURN(roots_, PathRoots::Make(options_.roots));
    SEGUE_ASSIGN_OR_RETURN(local_, roots_.Pin(options_.local_checkpoint));
    SEGUE_ASSIGN_OR_RETURN(source_, roots_.Pin(options_.source));
    SEGUE_RETURN_IF_ERROR(CheckIsNot(options_.base));
    for (const std::string& kept : options_.kept) SEGUE_RETURN_IF_ERROR(CheckIsNot(kept));
    return {};
  }

  // A base is what a checkpoint without state, or a rebuild, starts from: it must stay what it is.
  Status CheckIsNot(const std::string& base) const {
    std::error_code error;
    if (base.empty() || !std::filesystem::equivalent(base, local_, error)) return {};
    return InvalidArgument("'" + local_ +
                           "' is the engine's base checkpoint, which stays as it "
                           "is: name another directory");
  }

  Status CheckPath(const std::string& path) const { return roots_.Resolve(path).status(); }

  // Ends what a crash has left, and finds out which version is held.
  Status Recover() {
    SEGUE_RETURN_IF_ERROR(CheckpointReset(local_).Resume());
    const auto resolved = ResolveLocked(local_, options_.threads);
    if (resolved.status().code() == StatusCode::kTainted) {
      report_.warnings.push_back(resolved.status().message() +
                                 "; all files are taken from a full checkpoint");
      return {};
    }
    if (!resolved.ok()) return resolved.status();
    SEGUE_ASSIGN_OR_RETURN(held_, ReadDiskState(local_));
    SEGUE_ASSIGN_OR_RETURN(const auto own, ReadState(local_));
    if (own && own->lineage == kPullLineage && own->version != held_) return Decide(*own);
    // Another apply than a pull's was interrupted: the state is of before.
    const bool other = resolved->outcome == ResolveOutcome::kFinishedTarget &&
                       (!own || own->lineage != kPullLineage);
    if (!other || !held_) return {};
    held_.reset();
    return RemoveDiskState(local_);
  }

  // Our own state says another version than the common one, after an apply that was interrupted and
  // resolved, or since somebody else went on. The digest of all files decides.
  Status Decide(const CheckpointState& own) {
    const auto checkpoint = Checkpoint::Open(local_);
    if (!checkpoint.ok()) return {};  // The files are no version.
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(checkpoint.value()));
    const bool proven = plan.digest() == own.plan && DigestModel(plan, ViewOf(checkpoint.value()),
                                                                 options_.threads) == own.digest;
    if (!proven) return {};
    held_ = own.version;
    return WriteDiskState(local_, own.version);
  }

  // From which version on deltas are applied, and whether its files have to be copied first.
  Status FindStart() {
    report_.reset = false;
    start_ = target_;
    const std::uint64_t floor = held_.value_or(0);
    for (; start_ > floor; --start_) {
      SEGUE_ASSIGN_OR_RETURN(const std::string path, roots_.Pin(DiskVersionPath(source_, start_)));
      SEGUE_ASSIGN_OR_RETURN(const bool is_delta, IsDeltaDirectory(path));
      if (is_delta) continue;
      report_.reset = true;
      seed_ = path;
      return {};
    }
    if (held_) return {};
    report_.reset = true;
    seed_ = options_.base;
    if (!seed_.empty()) return {};
    return NotFound("'" + local_ + "' has no state, '" + source_ +
                    "' holds no full checkpoint up to version " + std::to_string(target_) +
                    ", and no base is named to start from");
  }

  Result<DeltaChain> OpenChain(const Plan& plan) {
    SEGUE_ASSIGN_OR_RETURN(DeltaChain chain, DeltaChain::Open(source_, start_ + 1, target_, plan,
                                                              [this](const std::string& path) {
                                                                return roots_.Pin(path);
                                                              }));
    report_.changed_tensors = chain.changed().size();
    return chain;
  }

  // --- In place ---

  Status Advance() {
    SEGUE_ASSIGN_OR_RETURN(files_, Checkpoint::Open(local_));
    for (const Shard& shard : files_.shards()) SEGUE_RETURN_IF_ERROR(CheckPath(shard.path));
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(files_));
    SEGUE_ASSIGN_OR_RETURN(const DeltaChain chain, OpenChain(plan));
    if (chain.changed().empty()) return WriteDiskState(local_, target_);
    InPlaceSteps steps;
    steps.make = [&](const std::string& folder) { return MakeDelta(plan, chain, folder); };
    steps.begun = [this] { return RemoveDiskState(local_); };
    steps.written = [this] { return WriteDiskState(local_, target_); };
    SEGUE_ASSIGN_OR_RETURN(const InPlaceReport done,
                           ApplyInPlace(local_, plan, options_.threads, steps));
    report_.warnings.insert(report_.warnings.end(), done.warnings.begin(), done.warnings.end());
    return {};
  }

  // All changes on the way, proven, as one delta of ours.
  Result<InPlaceDelta> MakeDelta(const Plan& plan, const DeltaChain& chain,
                                 const std::string& folder) {
    DeltaBuilder builder(plan, Profile::kSparseZstd, options_.threads);
    Digest before;
    const auto base = [&](std::size_t tensor) { return files_.TensorBytes(tensor); };
    const auto add = [&](std::span<const FoldedTensor> tensors) -> Status {
      std::vector<TensorChange> changes;
      changes.reserve(tensors.size());
      for (const FoldedTensor& folded : tensors) {
        changes.push_back({folded.tensor, base(folded.tensor).data(), folded.bytes.data()});
      }
      SEGUE_ASSIGN_OR_RETURN(const ChunkEncoder::Sums sums, builder.Add(changes));
      before += sums.before;
      return {};
    };
    SEGUE_RETURN_IF_ERROR(FoldAll(chain, options_.threads, base, add));
    SEGUE_ASSIGN_OR_RETURN(const Digest rest,
                           DigestRest(plan, files_, chain.changed(), options_.threads));
    InPlaceDelta delta;
    SEGUE_ASSIGN_OR_RETURN(delta.staged, builder.Take());
    files_ = Checkpoint();
    SEGUE_RETURN_IF_ERROR(WritePayload(plan, JoinPath(folder, "part-0"), delta));
    delta.base = {kPullLineage, start_, before + rest, plan.digest()};
    delta.target = {kPullLineage, target_, before + rest + delta.staged.difference(),
                    plan.digest()};
    return delta;
  }

  Status WritePayload(const Plan& plan, const std::string& path, InPlaceDelta& delta) const {
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    SEGUE_ASSIGN_OR_RETURN(const PayloadSummary summary,
                           WriteStagedDelta(plan, delta.staged, options_.threads,
                                            [&](ByteSpan bytes) { return file.Append(bytes); }));
    SEGUE_RETURN_IF_ERROR(file.Sync());
    SEGUE_RETURN_IF_ERROR(file.Close());
    delta.path = path;
    delta.size = summary.size;
    delta.sha256 = summary.sha256;
    return {};
  }

  // --- Reset ---

  Status Reset() {
    CheckpointReset reset(local_);
    Status built = BuildReset(reset);
    if (built.ok()) return reset.Commit(target_);
    (void)reset.Discard();  // Nobody looks at it, and the next pull removes it.
    return built;
  }

  Status BuildReset(CheckpointReset& reset) {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint seed, Checkpoint::Open(seed_));
    // What comes from a source is confined, the engine's own base is not.
    PathPin copies;
    if (seed_ != options_.base) {
      copies = [this](const std::string& path) { return roots_.Resolve(path); };
      for (const Shard& shard : seed.shards()) SEGUE_RETURN_IF_ERROR(CheckPath(shard.path));
      SEGUE_RETURN_IF_ERROR(CheckPath(JoinPath(seed.directory(), kIndexFileName)));
    }
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(seed));
    SEGUE_ASSIGN_OR_RETURN(const DeltaChain chain, OpenChain(plan));
    return reset.Build(seed, chain, options_.threads, copies, report_.warnings);
  }

  const PullOptions& options_;
  const std::uint64_t target_;
  PathRoots roots_;
  std::string local_;
  std::string source_;
  std::optional<std::uint64_t> held_;  // Version of the files; nothing where nobody knows.
  std::uint64_t start_ = 0;
  std::string seed_;  // What a reset copies.
  Checkpoint files_;
  PullReport report_;
};

}  // namespace

Result<PullReport> PullWeights(const PullOptions& options) { return Pull(options).Run(); }

}  // namespace segue
