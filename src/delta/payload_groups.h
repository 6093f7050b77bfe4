// SPDX-License-Identifier: Apache-2.0
//
// Payload groups: how the rows of a staged delta are cut into the groups of a payload, and groups
// that are compressed before all rows are there. The cut goes from row to row in the order of
// chunks, so a group is known once the row behind it is: while rows come in order, what is complete
// can be compressed meanwhile. The payload's bytes do not depend on it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "delta/payload_writer.h"
#include "delta/staged_delta.h"
#include "segue/status.h"

namespace segue {

// Says where groups begin, as an encoder fills them (GroupBuilder::IsFull, HasRoomFor).
class GroupCutter {
 public:
  // For each row in order: whether it begins another group than the row before it. True for the
  // first one.
  bool Begins(const Plan& plan, const ChunkRow& row);

 private:
  std::uint64_t size_ = 0;  // Of the group so far.
  std::size_t count_ = 0;
};

// By the number of their first chunk.
using EncodedGroups = std::map<std::uint64_t, EncodedGroup>;

class EarlyGroups {
 public:
  // `plan` outlives it.
  EarlyGroups(const Plan& plan, unsigned threads) : plan_(plan), builders_(threads) {}

  // The rows of `staged` from number `first` on are new; those before it were given already. A row
  // before one that was given ends it: all is compressed in the end then.
  Status Add(const StagedDelta& staged, std::size_t first);
  // What is compressed. A group among them is one of the payload's where that has the same rows. It
  // begins anew.
  EncodedGroups Take();

 private:
  Status Encode(const StagedDelta& staged, const std::vector<std::vector<std::size_t>>& groups);

  const Plan& plan_;
  std::vector<GroupBuilder> builders_;  // One a thread.
  GroupCutter cutter_;
  std::vector<std::size_t> open_;  // Rows of the group that is not complete.
  std::uint64_t next_chunk_ = 0;   // Behind all rows so far.
  bool is_in_order_ = true;
  EncodedGroups groups_;
};

// Writes the payload of a staged delta to `sink`, groups compressed in parallel, where they are not
// in `early` already. The bytes depend on neither.
Result<PayloadSummary> WriteStagedDelta(const Plan& plan, const StagedDelta& staged,
                                        unsigned threads, PayloadWriter::Sink sink,
                                        EncodedGroups early = {});

}  // namespace segue
