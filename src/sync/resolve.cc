// SPDX-License-Identifier: Apache-2.0
//
// Resolve: docs/protocol.md, section 5. First everything is proven without a write, so that what
// is not the interrupted apply stays as it is. Then an interrupted chunk gets its base values back,
// which can be done any number of times; only then is a delta applied to it, once.
#include "sync/resolve.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/begun_apply.h"
#include "base/file.h"
#include "base/out_of_memory.h"
#include "base/threads.h"
#include "delta/applier.h"
#include "delta/changes.h"
#include "delta/encoder.h"
#include "sync/fetch.h"
#include "sync/journal.h"
#include "sync/live_files.h"

namespace segue {
namespace {

enum class ChunkState : std::uint8_t { kBase, kTarget, kMixed };

// A chunk that is between base and target, and the base values of its changed elements.
struct MixedChunk {
  std::size_t index = 0;  // Into the work.
  ByteSpan values;
};

class Resolution {
 public:
  Resolution(Journal& journal, const std::string& checkpoint, JournalRecord record,
             unsigned threads)
      : journal_(journal),
        checkpoint_(checkpoint),
        record_(std::move(record)),
        device_(MakeHostDevice(threads)),
        threads_(threads) {}

  Result<ResolveReport> Run() {
    SEGUE_RETURN_IF_ERROR(Load());
    SEGUE_RETURN_IF_ERROR(Prove());
    SEGUE_RETURN_IF_ERROR(Write());
    report_.outcome = ResolveOutcome::kFinishedTarget;
    report_.version = record_.target.version;
    return report_;
  }

 private:
  Status Load() {
    SEGUE_ASSIGN_OR_RETURN(plan_, journal_.ReadPlan(record_));
    SEGUE_ASSIGN_OR_RETURN(staged_,
                           StageFile(plan_, JoinPath(journal_.folder(), record_.payload),
                                     record_.payload_size, record_.payload_sha256, threads_));
    if (staged_.difference() != record_.target.digest - record_.base.digest) {
      return Corruption("the journal's delta does not lead from the base digest that it states, " +
                        record_.base.digest.ToHex() + ", to its target digest, " +
                        record_.target.digest.ToHex());
    }
    device_->Reserve(plan_.chunk_size());
    return {};
  }

  // Everything that is known of the outcome before a byte is written: the checkpoint is nothing but
  // base and target, and leads to the target whole.
  Status Prove() {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint found, Checkpoint::OpenUnresolved(checkpoint_));
    SEGUE_ASSIGN_OR_RETURN(const Plan found_plan, Plan::FromCheckpoint(found, plan_.chunk_size()));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, found_plan, "the journal", "the checkpoint"));
    std::vector<std::byte*> tensors;
    for (std::size_t i = 0; i < found.tensors().size(); ++i) {
      // Work on a device is described by writable bytes; until Write() they are only read.
      tensors.push_back(const_cast<std::byte*>(found.TensorBytes(i).data()));
    }
    work_ = staged_.AllWork(plan_, MutableModelView(std::move(tensors)));
    SEGUE_RETURN_IF_ERROR(Classify());
    SEGUE_RETURN_IF_ERROR(FindBaseValues());
    for (const MixedChunk& chunk : mixed_) SEGUE_RETURN_IF_ERROR(TryMixed(chunk));
    if (device_->Preflight(WorkAt(ChunkState::kBase))) {
      return Tainted("checkpoint '" + checkpoint_ +
                     "': a chunk that is at its base does not lead to its target" + Advice());
    }
    return ProveRest(DigestModel(plan_, ViewOf(found), threads_));
  }

  Status Classify() {
    states_.resize(work_.size());
    found_.resize(work_.size());
    SEGUE_RETURN_IF_ERROR(ParallelFor(work_.size(), threads_, [&](std::size_t i, unsigned) {
      const ChunkWork& work = work_[i];
      found_[i] = host::ActiveKernels().digest(work.key, work.live, work.size);
      states_[i] = found_[i] == work.before  ? ChunkState::kBase
                   : found_[i] == work.after ? ChunkState::kTarget
                                             : ChunkState::kMixed;
      return Status();
    }));
    for (const ChunkState state : states_) {
      report_.chunks_at_base += state == ChunkState::kBase ? 1 : 0;
      report_.chunks_at_target += state == ChunkState::kTarget ? 1 : 0;
      report_.chunks_mixed += state == ChunkState::kMixed ? 1 : 0;
    }
    return {};
  }

  // Fills mixed_ from the undo file.
  Status FindBaseValues() {
    if (report_.chunks_mixed == 0) return {};
    SEGUE_ASSIGN_OR_RETURN(undo_, journal_.ReadUndo(record_));
    changes_.emplace(plan_.chunk_size());
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      SEGUE_ASSIGN_OR_RETURN(const auto positions, changes_->ReadPositions(work_[i]));
      const std::uint64_t size = positions.size() * work_[i].width;
      if (size > undo_.size() - offset) return Corruption("journal has too few base values");
      if (states_[i] == ChunkState::kMixed) {
        mixed_.push_back({i, ByteSpan(undo_).subspan(offset, size)});
      }
      offset += size;
    }
    return {};
  }

  // On a copy: the base values must make it the base, the delta must then make it the target, and
  // every byte that is there must be one of the two. Anything else was written by somebody else.
  Status TryMixed(const MixedChunk& chunk) {
    const ChunkWork& work = work_[chunk.index];
    ByteVector base(work.live, work.live + work.size);
    ChunkWork trial = work;
    trial.live = base.data();
    SEGUE_RETURN_IF_ERROR(changes_->RestoreValues(trial, chunk.values));
    if (host::ActiveKernels().digest(work.key, trial.live, work.size) != work.before) {
      return ForeignChunk(chunk.index);
    }
    ByteVector target = base;
    trial.live = target.data();
    if (device_->Apply(std::span(&trial, 1))) return ForeignChunk(chunk.index);
    for (std::size_t i = 0; i < work.size; ++i) {
      if (work.live[i] != base[i] && work.live[i] != target[i]) return ForeignChunk(chunk.index);
    }
    return {};
  }

  Status ForeignChunk(std::size_t i) const {
    return Tainted(DescribeChunk(plan_, staged_.rows()[i].chunk) + " has digest " +
                   found_[i].ToHex() + ", and is neither its base " + work_[i].before.ToHex() +
                   ", nor its target " + work_[i].after.ToHex() + ", nor a mix of the two" +
                   Advice());
  }

  // The chunks that the delta does not touch, by what the digest of the whole leaves for them.
  Status ProveRest(Digest whole) const {
    for (std::size_t i = 0; i < work_.size(); ++i) whole += work_[i].after - found_[i];
    if (whole == record_.target.digest) return {};
    return Tainted("checkpoint '" + checkpoint_ + "' would have digest " + whole.ToHex() +
                   ", its target is " + record_.target.digest.ToHex() +
                   ": a part that the apply did not touch was changed by somebody else" + Advice());
  }

  std::string Advice() const {
    return "; resolve has changed nothing: restore all files of the checkpoint from a full copy of "
           "one version, and remove '" +
           journal_.folder() + "'";
  }

  Status ChangedMeanwhile() const {
    return Tainted("checkpoint '" + checkpoint_ +
                   "' was changed by somebody else while it was resolved; resolve it again, or "
                   "restore all its files and remove '" +
                   journal_.folder() + "'");
  }

  std::vector<ChunkWork> WorkAt(ChunkState state) const {
    std::vector<ChunkWork> chosen;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (states_[i] == state) chosen.push_back(work_[i]);
    }
    return chosen;
  }

  Status Write() {
    std::vector<std::string> copied;
    SEGUE_ASSIGN_OR_RETURN(live_, OpenLiveFiles(checkpoint_, copied));
    work_ = staged_.AllWork(plan_, live_.view);
    SEGUE_RETURN_IF_ERROR(ReserveBlocks(live_, WorkAt(ChunkState::kBase)));
    SEGUE_RETURN_IF_ERROR(ReserveBlocks(live_, WorkAt(ChunkState::kMixed)));
    for (const MixedChunk& chunk : mixed_) {
      const ChunkWork& work = work_[chunk.index];
      SEGUE_RETURN_IF_ERROR(changes_->RestoreValues(work, chunk.values));
      found_[chunk.index] = host::ActiveKernels().digest(work.key, work.live, work.size);
      if (found_[chunk.index] != work.before) return ChangedMeanwhile();
      states_[chunk.index] = ChunkState::kBase;
    }
    const std::vector<ChunkWork> rest = WorkAt(ChunkState::kBase);
    if (device_->Preflight(rest) || device_->Apply(rest)) return ChangedMeanwhile();
    SEGUE_RETURN_IF_ERROR(SyncLiveFiles(live_));
    SEGUE_RETURN_IF_ERROR(WriteState(checkpoint_, record_.target));
    return journal_.Remove();
  }

  Journal& journal_;
  const std::string& checkpoint_;
  JournalRecord record_;
  std::unique_ptr<Device> device_;
  unsigned threads_;
  Plan plan_;
  StagedDelta staged_;
  LiveFiles live_;
  std::vector<ChunkWork> work_;
  std::vector<Digest> found_;
  std::vector<ChunkState> states_;
  ByteVector undo_;
  std::optional<ChangeReader> changes_;
  std::vector<MixedChunk> mixed_;
  ResolveReport report_;
};

// The journal or the files cannot be read: the weights may be mixed, whatever the reason.
Status CannotResolve(const std::string& checkpoint, const Status& reason) {
  if (reason.code() == StatusCode::kTainted) return reason;
  return Tainted("an apply of '" + checkpoint +
                 "' was interrupted and cannot be resolved: " + reason.message());
}

Result<ResolveReport> ResolveBegun(Journal& journal, const std::string& checkpoint,
                                   const JournalRecord& record, unsigned threads) {
  const BegunApply begun;
  Result<ResolveReport> report = CatchOutOfMemory([&]() -> Result<ResolveReport> {
    return Resolution(journal, checkpoint, record, threads).Run();
  });
  if (report.ok()) return report;
  return CannotResolve(checkpoint, report.status());
}

}  // namespace

Result<ResolveReport> ResolveLocked(const std::string& checkpoint, unsigned threads) {
  Journal journal(checkpoint);
  SEGUE_RETURN_IF_ERROR(RemoveLeftovers(checkpoint));
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(journal.folder()));
  const auto record = journal.Read();
  if (!record.ok()) return CannotResolve(checkpoint, record.status());
  if (record.value()) return ResolveBegun(journal, checkpoint, *record.value(), threads);
  ResolveReport report;
  if (!FileExists(journal.folder())) return report;
  SEGUE_RETURN_IF_ERROR(journal.Remove());
  SEGUE_ASSIGN_OR_RETURN(const auto state, ReadState(checkpoint));
  report.outcome = ResolveOutcome::kKeptBase;
  if (state) report.version = state->version;
  return report;
}

Result<ResolveReport> Resolve(const std::string& checkpoint, unsigned threads) {
  SEGUE_RETURN_IF_ERROR(CheckCheckpointDirectory(checkpoint));
  if (!FileExists(StateDirectory(checkpoint))) {
    // Nothing was interrupted, if it is a checkpoint at all.
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint whole, Checkpoint::Open(checkpoint));
    return ResolveReport();
  }
  SEGUE_ASSIGN_OR_RETURN(const CheckpointLock lock, CheckpointLock::Acquire(checkpoint));
  return ResolveLocked(checkpoint, threads);
}

}  // namespace segue
