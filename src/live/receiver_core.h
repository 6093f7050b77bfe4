// SPDX-License-Identifier: Apache-2.0
//
// ReceiverCore: the states of docs/protocol.md, section 7, over the weights of one engine, be they
// of one lineage or of several: Receiver and ReceiverGroup are this, seen through their headers.
// Every public call takes its turn by moving the state under the mutex; the work itself
// (live/live_engine.h) runs without it, so that status() always answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "live/follower.h"
#include "live/live_engine.h"
#include "live/live_environment.h"
#include "live/scrubber.h"
#include "segue/receiver.h"
#include "segue/receiver_counts.h"

namespace segue {

// Of the clock whose times reports have.
inline double SecondsBetween(std::uint64_t from_ns, std::uint64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

class ReceiverCore : public Followed {
 public:
  // `lineages`: their own hooks are not looked at.
  ReceiverCore(const std::vector<ReceiverOptions>& lineages, EngineHooks hooks, bool same_version,
               LiveEnvironment& environment);
  ~ReceiverCore() override;

  Status Start();
  Status StartBound(std::vector<BoundModel> models);

  Status Prepare(const EngineRequest& request);
  Status WaitPrepared();
  Status Apply(const std::string& session, const ApplyChoices& choices) override;
  Status Resume(const std::string& session, bool keep_pause) override;
  Status Abort(const std::string& session) override;
  Status Clear();
  // Prepares, applies and resumes. A stop gives up the prepare.
  Status Update(const EngineRequest& request, const ApplyChoices& choices,
                const std::stop_token& stop = {});
  // Every lineage is asked.
  Status Rebuild(const EngineRequest& request);
  Status Release();
  Status Follow(std::chrono::milliseconds interval);
  void GiveUpStore() { gives_up_ = true; }

  std::size_t size() const { return engine_.size(); }
  Status CheckWeights() const;
  ReceiverStatus GetStatus(std::size_t i) const;
  ReceiverCounts GetCounts(std::size_t i) const;
  Result<std::vector<std::uint64_t>> Versions(std::size_t i) const;
  // Every lineage as `part` says.
  EngineRequest RequestOfAll(const PrepareRequest& part) const;

  Result<std::vector<std::optional<std::uint64_t>>> Newest() const override;
  std::vector<std::uint64_t> held_versions() const override;
  ReceiverState StateOf(const std::string& session) const override;
  Status RebuildAgain() override;
  Status Take(const FollowRequest& request, const std::stop_token& stop) override;
  void NoteLook(const Status& status) override;

 protected:
  // A destructor of what is made of this begins with it: tasks call virtual functions, and may not
  // while an object turns into its base.
  void EndTasks();

 private:
  // Of the update that runs or ran last, for one lineage.
  struct Part {
    std::string manifest_sha256;
    std::optional<std::uint64_t> base_version;
    std::optional<std::uint64_t> target_version;
    UpdateReport last;
    bool caught_up = false;  // `last` is of the way from the checkpoint, or at the start.
    PauseCounts pauses;
    std::unique_ptr<Scrubber> scrubber;
  };

  // Of a rebuild or a start that loads, in nanoseconds as in UpdateReport.
  struct Pause {
    std::uint64_t started_ns = 0;
    std::uint64_t fenced_ns = 0;
    std::uint64_t resumed_ns = 0;
  };

  Status CheckReady(std::size_t i) const;
  std::string RebuildNote() const;
  void HearScrubbers();
  LiveWeights& weights(std::size_t i) const { return engine_.weights(i); }
  Status Begin();
  Status CheckStart() const;
  EngineRequest StartRequest() const;
  static std::uint64_t InNanoseconds(Environment::Clock::time_point time);
  std::uint64_t NowInNanoseconds();
  void AwaitPrepared(std::unique_lock<std::mutex>& lock);
  bool IsBusy() const;
  Status CheckSession(const std::string& session) const;
  Status InProgress() const;
  Status WrongState(const char* verb) const;
  Status Outcome() const;
  void Settle(ReceiverState state, Status why);
  Status StartTask(std::unique_ptr<BackgroundTask>& task, TaskPriority priority,
                   Environment::Body body);
  Status StartPrepare(const EngineRequest& request);
  void StopPreparing();
  void Free(std::unique_lock<std::mutex>& lock, std::unique_ptr<EngineUpdate> spent,
            std::unique_ptr<BackgroundTask> ended = nullptr);
  void RunPrepare(const EngineRequest& request, const std::stop_token& stop);
  Status FinishApply(const ApplyChoices& choices);
  void NoteResumed(std::uint64_t now);
  void StopFollowing();
  Status ReleaseSession();
  Status RunRebuild(const EngineRequest& request, ReceiverState before);
  Status EndRebuild(ReceiverState state, const Status& status);
  Status FinishRebuild(const std::vector<std::uint64_t>& held, Pause pause);
  void NoteStart();
  void NoteRebuilt(std::size_t i, std::uint64_t held, const Pause& pause);
  Status ApplyPrepared(const ApplyChoices& choices);
  Status CatchUp(const EngineRequest& request, bool reopen);

  const bool same_version_;
  LiveEnvironment& environment_;
  // Its steps are for whoever owns `prepared_`, for the start and for a rebuild.
  LiveEngine engine_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReceiverState state_ = ReceiverState::kIdle;
  bool ready_ = false;
  bool rebuilding_ = false;
  bool freeing_ = false;  // What an update held that was given up; nothing is staged meanwhile.
  // Messages are kept as statuses: moving to another state, with a gate closed perhaps, needs no
  // memory then.
  Status why_;       // What is to be said of the state.
  Status look_why_;  // Why a follower does not go on, while `why_` says nothing.
  std::string session_;
  EngineRequest asked_;          // What the session was begun with.
  std::vector<Part> parts_;      // By lineage.
  EngineRequest rebuild_asked_;  // The last rebuild, and how often it has failed since.
  bool is_rebuild_due_ = false;  // It failed midway, of what may be better later.
  std::uint64_t rebuild_failures_ = 0;
  Status failure_;
  std::uint64_t update_failures_ = 0;
  std::uint64_t pause_failures_ = 0;

  // Owned by whoever moved the state to preparing, applying or resuming.
  std::unique_ptr<EngineUpdate> prepared_;

  // No server of a store is waited for any more.
  std::atomic<bool> gives_up_{false};
  std::unique_ptr<BackgroundTask> prepare_task_;
  bool stop_prepare_ = false;  // The task that is about to be started.
  std::uint64_t prepare_count_ = 0;
  std::atomic<bool> follows_{false};
  Follower follower_{*this};
  std::mutex follow_mutex_;  // For the next one; not held by a follower.
  std::unique_ptr<BackgroundTask> follow_task_;
};

}  // namespace segue
