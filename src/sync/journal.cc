// SPDX-License-Identifier: Apache-2.0
//
// Journal files. The record is renamed into place last, and the whole folder is renamed away at the
// end: the record in the folder alone says whether an apply is under way.
#include "sync/journal.h"

#include <sys/stat.h>

#include <cerrno>

#include "base/file.h"
#include "base/file_place.h"
#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "delta/changes.h"
#include "sync/json_fields.h"

namespace segue {
namespace {

// Base values are collected up to this size before they are written out.
constexpr std::size_t kUndoBufferSize = 8u << 20;

void SetState(JsonFields& json, const std::string& prefix, const CheckpointState& state) {
  json.Set(prefix + "_version", state.version);
  json.Set(prefix + "_digest", state.digest.ToHex());
}

Status GetState(const JsonFields& json, const std::string& prefix, CheckpointState& state) {
  SEGUE_RETURN_IF_ERROR(json.Get("lineage", state.lineage));
  SEGUE_RETURN_IF_ERROR(json.Get("plan", state.plan));
  SEGUE_RETURN_IF_ERROR(json.Get(prefix + "_version", state.version));
  return json.Get(prefix + "_digest", state.digest);
}

Status WriteUndo(const std::string& path, const Plan& plan, std::span<const ChunkWork> work,
                 JournalRecord& record) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  ChangeReader changes(plan.chunk_size());
  Sha256Hasher hasher;
  ByteVector buffer;
  for (std::size_t i = 0; i < work.size(); ++i) {
    SEGUE_RETURN_IF_ERROR(changes.CollectValues(work[i], buffer));
    if (buffer.size() < kUndoBufferSize && i + 1 < work.size()) continue;
    hasher.Add(buffer);
    SEGUE_RETURN_IF_ERROR(file.Append(buffer));
    record.undo_size += buffer.size();
    buffer.clear();
  }
  record.undo_sha256 = hasher.Finish();
  SEGUE_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

}  // namespace

Journal::Journal(const std::string& checkpoint)
    : checkpoint_(checkpoint), folder_(JoinPath(StateDirectory(checkpoint), "apply")) {}

std::string Journal::RecordPath() const { return JoinPath(checkpoint_, kJournalRecordName); }

std::string Journal::DonePath() const { return folder_ + "-done"; }

Status Journal::Prepare() {
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(StateDirectory(checkpoint_)));
  SEGUE_RETURN_IF_ERROR(RemoveTree(DonePath()));
  SEGUE_RETURN_IF_ERROR(RemoveTree(folder_));
  return MakeOwnDirectory(folder_);
}

Status Journal::Begin(const Plan& plan, std::span<const ChunkWork> work, JournalRecord record) {
  SEGUE_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(folder_, "plan"), plan.object()));
  SEGUE_RETURN_IF_ERROR(WriteUndo(JoinPath(folder_, "undo"), plan, work, record));
  // The names of all that was written, and of the folders above.
  SEGUE_RETURN_IF_ERROR(SyncDirectory(folder_));
  SEGUE_RETURN_IF_ERROR(SyncDirectory(StateDirectory(checkpoint_)));
  SEGUE_RETURN_IF_ERROR(SyncDirectory(checkpoint_));
  JsonFields json("segue-apply");
  json.Set("lineage", record.target.lineage);
  json.Set("plan", record.target.plan.ToHex());
  SetState(json, "base", record.base);
  SetState(json, "target", record.target);
  json.Set("payload", record.payload);
  json.Set("payload_size", record.payload_size);
  json.Set("payload_sha256", record.payload_sha256.ToHex());
  json.Set("undo_size", record.undo_size);
  json.Set("undo_sha256", record.undo_sha256.ToHex());
  begun_.emplace();
  return WriteFileAtomic(RecordPath(), AsBytes(json.ToText()));
}

Result<std::optional<JournalRecord>> Journal::Read() const {
  struct stat info {};
  if (ExaminePath(RecordPath(), info) != 0) {
    if (errno == ENOENT) return std::optional<JournalRecord>();
    return ErrnoStatus("examine", RecordPath());
  }
  SEGUE_ASSIGN_OR_RETURN(const JsonFields json, JsonFields::Read(RecordPath(), "segue-apply"));
  JournalRecord record;
  SEGUE_RETURN_IF_ERROR(GetState(json, "base", record.base));
  SEGUE_RETURN_IF_ERROR(GetState(json, "target", record.target));
  SEGUE_RETURN_IF_ERROR(json.Get("payload", record.payload));
  SEGUE_RETURN_IF_ERROR(json.Get("payload_size", record.payload_size));
  SEGUE_RETURN_IF_ERROR(json.Get("payload_sha256", record.payload_sha256));
  SEGUE_RETURN_IF_ERROR(json.Get("undo_size", record.undo_size));
  SEGUE_RETURN_IF_ERROR(json.Get("undo_sha256", record.undo_sha256));
  if (record.payload.empty() || record.payload.find('/') != std::string::npos ||
      record.payload.front() == '.') {
    return Corruption("'" + RecordPath() + "' names the payload '" + record.payload + "'");
  }
  SEGUE_RETURN_IF_ERROR(CheckLineageName(record.target.lineage));
  if (record.target.version > limits::kVersionMax || record.base.version > limits::kVersionMax) {
    return Corruption("'" + RecordPath() + "' has a version over the limit of " +
                      std::to_string(limits::kVersionMax));
  }
  return std::optional<JournalRecord>(std::move(record));
}

Result<Plan> Journal::ReadPlan(const JournalRecord& record) const {
  const std::string path = JoinPath(folder_, "plan");
  SEGUE_ASSIGN_OR_RETURN(const ByteVector object, ReadFile(path, limits::kPlanSizeMax));
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::Parse(object));
  if (plan.digest() != record.target.plan) {
    return Corruption("'" + path + "' has SHA-256 " + plan.digest().ToHex() + ", expected " +
                      record.target.plan.ToHex());
  }
  return plan;
}

Result<ByteVector> Journal::ReadUndo(const JournalRecord& record) const {
  const std::string path = JoinPath(folder_, "undo");
  SEGUE_ASSIGN_OR_RETURN(ByteVector undo, ReadFile(path, record.undo_size));
  if (undo.size() != record.undo_size || HashSha256(undo) != record.undo_sha256) {
    return Corruption("'" + path + "' does not hold the base values that were written");
  }
  return undo;
}

Status Journal::Remove() {
  const std::string done = DonePath();
  SEGUE_RETURN_IF_ERROR(RemoveTree(done));
  SEGUE_RETURN_IF_ERROR(RenameFile(folder_, done));
  begun_.reset();
  SEGUE_RETURN_IF_ERROR(SyncDirectory(StateDirectory(checkpoint_)));
  return RemoveTree(done);
}

}  // namespace segue
