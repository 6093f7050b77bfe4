// SPDX-License-Identifier: Apache-2.0
//
// Ranks: the receivers of one engine's ranks in step. At each step all add up how they fared and
// what they found, so that all go on or none does (docs/protocol.md, "Views and ranks"). One
// receiver that holds everything is its own only rank.
#pragma once

#include <cstdint>
#include <utility>

#include "delta/rank_sums.h"
#include "segue/receiver.h"
#include "segue/status.h"

namespace segue {

// Where ranks meet. A rank that stands elsewhere than the others makes all of them fail.
enum class Meeting : std::uint64_t { kBind = 1, kPrepare, kClose, kApply, kRebuild };

class Ranks {
 public:
  Ranks() = default;
  explicit Ranks(SumOverRanks sum) : sum_(std::move(sum)) {}

  bool several() const { return static_cast<bool>(sum_); }

  // OK when every rank came to this meeting, for the same `subject` (a version, say), and fared
  // well; `sums` are then those of all ranks. Otherwise this rank's own failure if it has one, or
  // Unavailable.
  Status Agree(Meeting meeting, std::uint64_t subject, const Status& mine,
               RankSums* sums = nullptr) const;

 private:
  SumOverRanks sum_;
};

}  // namespace segue
