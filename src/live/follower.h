// SPDX-License-Identifier: Apache-2.0
//
// Follower: takes the newest versions of an engine's lineages, again and again, through the calls
// that anybody else has; in the background (docs/protocol.md, section 7, "Following").
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/status.h"
#include "sync/environment.h"

namespace segue {

struct FollowRequest {
  std::string session;
  std::vector<std::optional<std::uint64_t>> targets;  // By lineage; none: it stays.
};

// What a follower asks of a receiver: its public calls, and a place for what went wrong in between.
class Followed {
 public:
  virtual ~Followed() = default;
  // What each lineage is to go to; none: nothing is on offer.
  virtual Result<std::vector<std::optional<std::uint64_t>>> Newest() const = 0;
  virtual std::vector<std::uint64_t> held_versions() const = 0;
  // Of the update that runs or ran last.
  virtual ReceiverState StateOf(const std::string& session) const = 0;
  // A rebuild that failed midway, of what may be better later, once more; OK where there is none.
  virtual Status RebuildAgain() = 0;
  // Prepares, applies and resumes. A stop gives up the prepare.
  virtual Status Take(const FollowRequest& request, const std::stop_token& stop) = 0;
  virtual Status Apply(const std::string& session, const ApplyChoices& choices) = 0;
  virtual Status Resume(const std::string& session, bool keep_pause) = 0;
  virtual Status Abort(const std::string& session) = 0;
  // How a look fared: why nothing was taken, though there may be news. OK: all is well.
  virtual void NoteLook(const Status& status) = 0;
};

class Follower {
 public:
  explicit Follower(Followed& receiver) : receiver_(receiver) {}

  // Until asked to stop: a look every `interval`, and fewer of them while they fail. One that fails
  // after long (an engine kept the gate from closing, say) is followed by several times as long a
  // rest, since the other engines have waited at the gate.
  void Run(Environment& environment, std::chrono::milliseconds interval,
           const std::stop_token& stop);
  // One look. False when something went wrong that may be better later.
  bool TakeNewest(const std::stop_token& stop = {});

 private:
  Status Look(const std::stop_token& stop);
  Status FinishEarlier(const std::string& next);

  Followed& receiver_;
  std::string session_;  // That it began last; its own.
};

}  // namespace segue
