// SPDX-License-Identifier: Apache-2.0
//
// Receiver group: a receiver of several lineages at one engine, a policy and its draft model, say.
// One call moves all of them together or none, in one pause; engines never see versions that no
// update put together. docs/protocol.md, section 15, says what is promised and why.
//
// Engines enter the gates of all lineages before they read, in the order of the group
// (BeginStepOfAll() in segue/engine.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/receiver_counts.h"

namespace segue {

struct GroupOptions {
  // In the order in which engines enter the gates; 1 to 16, each lineage once. Hooks are the
  // group's; `gate_deadline` of the first one is for all gates together.
  std::vector<ReceiverOptions> lineages = {};
  EngineHooks hooks = {};
  // What "the newest" means: the newest of each, or (set) the highest number that all of them
  // offer, while none is beyond it.
  bool same_version = false;
};

struct GroupRequest {
  std::string session = {};  // Any name; repeated requests are known by it.
  // What is asked of each lineage, by its name (sessions in there are not looked at); one that is
  // not named stays. Empty: all of them are asked.
  std::map<std::string, PrepareRequest> lineages = {};
  // Of all; by default the newest. InvalidArgument together with `lineages`.
  std::optional<std::uint64_t> target_version = {};
};

// Thread-safe.
class ReceiverGroup {
 public:
  // Takes all segments over, or makes them from their checkpoints, and goes to the versions that
  // are asked for in their options, together. The gates are open when this returns. Unavailable
  // for a segment that was left in the middle of an update with others that are not in the group.
  static Result<std::unique_ptr<ReceiverGroup>> Open(const GroupOptions& options);
  // The same for weights of this process; one model for each of `options.lineages`.
  static Result<std::unique_ptr<ReceiverGroup>> Open(const GroupOptions& options,
                                                     std::vector<BoundModel> models);
  ~ReceiverGroup();
  ReceiverGroup(const ReceiverGroup&) = delete;
  ReceiverGroup& operator=(const ReceiverGroup&) = delete;

  // As in Receiver, of all that the request names.
  Status Prepare(const GroupRequest& request);
  Status WaitPrepared();
  Status Apply(const std::string& session, const ApplyChoices& choices = {});
  Status Resume(const std::string& session, bool keep_pause = false);
  Status Abort(const std::string& session);
  Status Clear();
  Status CheckWeights() const;
  // All of it at once. Reports are in the status of each lineage.
  Status Update(const GroupRequest& request, const ApplyChoices& choices = {});
  // Reads all checkpoints again and goes to the targets. By their names: all, or none (the newest
  // of each).
  Status Rebuild(const std::map<std::string, std::uint64_t>& targets = {});
  // To one number, all of them.
  Status Rebuild(std::uint64_t target_version);
  Status Release();
  // From now on takes what is newest as soon as any lineage has something newer.
  Status Follow(std::chrono::milliseconds interval);

  // As Receiver::GiveUpStore().
  void GiveUpStore();

  // One for each lineage, in the order of the group, all of one moment; state, session and failure
  // are those of all.
  std::vector<ReceiverStatus> status() const;
  // In the same order.
  std::vector<ReceiverCounts> counts() const;
  // Versions that the store offers of this lineage now, ascending. InvalidArgument for another.
  Result<std::vector<std::uint64_t>> Versions(const std::string& lineage) const;

 private:
  class Impl;
  friend struct ReceiverInternals;
  explicit ReceiverGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
