// SPDX-License-Identifier: Apache-2.0
//
// Follower: takes the newest version of a lineage, again and again, through the calls that anybody
// else has; in the background (docs/protocol.md, section 7, "Following").
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/status.h"
#include "sync/environment.h"

namespace segue {

// What a follower asks of a receiver: its public calls, and a place for what went wrong in between.
class Followed {
 public:
  virtual ~Followed() = default;
  virtual Result<std::vector<std::uint64_t>> Versions() const = 0;
  virtual std::uint64_t held_version() const = 0;
  // Of the update that runs or ran last.
  virtual ReceiverState StateOf(const std::string& session) const = 0;
  virtual Result<UpdateReport> Update(const PrepareRequest& request,
                                      const ApplyChoices& choices) = 0;
  virtual Status Apply(const std::string& session, const ApplyChoices& choices) = 0;
  virtual Status Resume(const std::string& session, bool keep_pause) = 0;
  virtual Status Abort(const std::string& session) = 0;
  // The versions cannot be listed now.
  virtual void NoteTrouble(const Status& status) = 0;
};

class Follower {
 public:
  explicit Follower(Followed& receiver) : receiver_(receiver) {}

  // Until asked to stop: a look every `interval`, and fewer of them while they fail.
  void Run(Environment& environment, std::chrono::milliseconds interval,
           const std::stop_token& stop);
  // One look. False when something went wrong that may be better later.
  bool TakeNewest();

 private:
  Status FinishEarlier(const std::string& next);

  Followed& receiver_;
  std::string session_;  // That it began last; its own.
};

}  // namespace segue
