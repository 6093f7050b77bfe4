// SPDX-License-Identifier: Apache-2.0
//
// Journal of an in-place apply: everything that is needed to end an interrupted one without the
// store (docs/protocol.md, sections 4 and 5). An apply is begun when Begin() has returned, and over
// when Remove() has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/begun_apply.h"
#include "delta/applier.h"
#include "delta/staged_delta.h"
#include "segue/status.h"
#include "sync/checkpoint_state.h"

namespace segue {

struct JournalRecord {
  CheckpointState base;
  CheckpointState target;
  std::string payload;  // File name in the journal's folder.
  std::uint64_t payload_size = 0;
  Sha256 payload_sha256;
  std::uint64_t undo_size = 0;
  Sha256 undo_sha256;
};

class Journal {
 public:
  explicit Journal(const std::string& checkpoint);

  // An empty folder for payload files; what an apply that never began has left is removed.
  Status Prepare();
  const std::string& folder() const { return folder_; }

  // Writes plan and base values, then the record; all durable. On failure the record may be there
  // or not: Remove() settles it, since no weight has been changed.
  Status Begin(const Plan& plan, std::span<const ChunkWork> work, JournalRecord record);
  // Nothing where no apply was begun. A failure means that one was, or may have been.
  Result<std::optional<JournalRecord>> Read() const;
  Result<Plan> ReadPlan(const JournalRecord& record) const;
  Result<ByteVector> ReadUndo(const JournalRecord& record) const;
  // The apply is over, or was not begun. The folder is renamed away first, so that a crash in
  // between leaves no half journal.
  Status Remove();

 private:
  std::string RecordPath() const;
  std::string DonePath() const;

  std::string checkpoint_;
  std::string folder_;
  std::optional<BegunApply> begun_;
};

}  // namespace segue
