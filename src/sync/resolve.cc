// SPDX-License-Identifier: Apache-2.0
//
// Resolve: docs/protocol.md, section 5. An interrupted chunk gets its base values back, which can
// be done any number of times; only then is a delta applied to it, once.
#include "sync/resolve.h"

#include <utility>
#include <vector>

#include "base/file.h"
#include "base/threads.h"
#include "delta/applier.h"
#include "delta/changes.h"
#include "sync/fetch.h"
#include "sync/journal.h"
#include "sync/live_files.h"

namespace segue {
namespace {

enum class ChunkState : std::uint8_t { kBase, kTarget, kMixed };

class Resolution {
 public:
  Resolution(Journal& journal, const std::string& checkpoint, JournalRecord record,
             unsigned threads)
      : journal_(journal), checkpoint_(checkpoint), record_(std::move(record)), threads_(threads) {}

  Result<ResolveReport> Run() {
    SEGUE_RETURN_IF_ERROR(Load());
    SEGUE_RETURN_IF_ERROR(Classify());
    SEGUE_RETURN_IF_ERROR(RestoreMixed());
    SEGUE_RETURN_IF_ERROR(ApplyRest());
    SEGUE_RETURN_IF_ERROR(SyncLiveFiles(live_));
    SEGUE_RETURN_IF_ERROR(WriteState(checkpoint_, record_.target));
    SEGUE_RETURN_IF_ERROR(journal_.Remove());
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
    std::vector<std::string> copied;
    SEGUE_ASSIGN_OR_RETURN(live_, OpenLiveFiles(checkpoint_, copied));
    SEGUE_ASSIGN_OR_RETURN(const Plan found,
                           Plan::FromCheckpoint(live_.checkpoint, plan_.chunk_size()));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, found, "the journal", "the checkpoint"));
    work_ = staged_.AllWork(plan_, live_.view);
    return {};
  }

  Status Classify() {
    states_.resize(work_.size());
    SEGUE_RETURN_IF_ERROR(ParallelFor(work_.size(), threads_, [&](std::size_t i, unsigned) {
      const ChunkWork& work = work_[i];
      const Digest found = host::ActiveKernels().digest(work.key, work.live, work.size);
      states_[i] = found == work.before  ? ChunkState::kBase
                   : found == work.after ? ChunkState::kTarget
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

  Status RestoreMixed() {
    if (report_.chunks_mixed == 0) return {};
    SEGUE_ASSIGN_OR_RETURN(const ByteVector undo, journal_.ReadUndo(record_));
    ChangeReader changes(plan_.chunk_size());
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      SEGUE_ASSIGN_OR_RETURN(const auto positions, changes.ReadPositions(work_[i]));
      const std::uint64_t size = positions.size() * work_[i].width;
      if (size > undo.size() - offset) return Corruption("journal has too few base values");
      if (states_[i] == ChunkState::kMixed) {
        SEGUE_RETURN_IF_ERROR(
            changes.RestoreValues(work_[i], ByteSpan(undo).subspan(offset, size)));
        SEGUE_RETURN_IF_ERROR(CheckRestored(i));
      }
      offset += size;
    }
    return {};
  }

  Status CheckRestored(std::size_t i) {
    const ChunkWork& work = work_[i];
    const Digest found = host::ActiveKernels().digest(work.key, work.live, work.size);
    if (found == work.before) {
      states_[i] = ChunkState::kBase;
      return {};
    }
    return Tainted(DescribeChunk(plan_, staged_.rows()[i].chunk) + " has digest " + found.ToHex() +
                   ", which is neither its base " + work.before.ToHex() + " nor its target " +
                   work.after.ToHex() + ": restore the checkpoint from a full copy");
  }

  Status ApplyRest() {
    std::vector<ChunkWork> rest;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (states_[i] == ChunkState::kBase) rest.push_back(work_[i]);
    }
    const auto device = MakeHostDevice(threads_);
    device->Reserve(plan_.chunk_size());
    if (device->Preflight(rest) || device->Apply(rest)) {
      return Tainted("checkpoint '" + checkpoint_ +
                     "': a chunk that is at its base does not lead to its target");
    }
    return {};
  }

  Journal& journal_;
  const std::string& checkpoint_;
  JournalRecord record_;
  unsigned threads_;
  Plan plan_;
  StagedDelta staged_;
  LiveFiles live_;
  std::vector<ChunkWork> work_;
  std::vector<ChunkState> states_;
  ResolveReport report_;
};

}  // namespace

Result<ResolveReport> ResolveLocked(const std::string& checkpoint, unsigned threads) {
  Journal journal(checkpoint);
  SEGUE_ASSIGN_OR_RETURN(auto record, journal.Read());
  if (record) {
    Result<ResolveReport> report = Resolution(journal, checkpoint, *record, threads).Run();
    if (report.ok() || report.status().code() == StatusCode::kTainted) return report;
    // The journal or the files cannot be read: the weights may be mixed, whatever the reason.
    return Tainted("an apply of '" + checkpoint +
                   "' was interrupted and cannot be resolved: " + report.status().message());
  }
  ResolveReport report;
  if (!FileExists(journal.folder())) return report;
  SEGUE_RETURN_IF_ERROR(journal.Remove());
  SEGUE_ASSIGN_OR_RETURN(const auto state, ReadState(checkpoint));
  report.outcome = ResolveOutcome::kKeptBase;
  if (state) report.version = state->version;
  return report;
}

Result<ResolveReport> Resolve(const std::string& checkpoint, unsigned threads) {
  if (!FileExists(checkpoint)) return NotFound("there is no checkpoint '" + checkpoint + "'");
  if (!FileExists(StateDirectory(checkpoint))) return ResolveReport();
  SEGUE_ASSIGN_OR_RETURN(const CheckpointLock lock, CheckpointLock::Acquire(checkpoint));
  return ResolveLocked(checkpoint, threads);
}

}  // namespace segue
