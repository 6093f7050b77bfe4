// SPDX-License-Identifier: Apache-2.0
//
// Receiver: keeps the live weights of one engine in step with a store. It stages while the engine
// serves, holds it at the gate for the apply alone, and reports a version only after proof.
// docs/protocol.md, sections 6 and 7, says what is promised.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "segue/engine_hooks.h"
#include "segue/keys.h"
#include "segue/receiver_counts.h"
#include "segue/status.h"
#include "segue/view.h"

namespace segue {

struct ReceiverOptions {
  std::string store = {};
  std::string lineage = "default";
  std::string checkpoint = {};  // Directory: what the engine starts from and is rebuilt from.
  std::string name = {};        // Of the shared memory segment that engines attach to.
  std::string staging = {};  // Directory for payload files; by default the system's temporary one.
  unsigned threads = 0;      // For apply and rebuild; 0 for every core.
  unsigned background_threads = 1;  // For stage, preflight and scrub, at low priority.
  std::chrono::milliseconds gate_deadline{30'000};
  std::uint64_t scrub_rate = 0;  // Bytes a second; 0 for no scrub.
  bool rebuild = false;          // Start from the checkpoint whatever the segment holds.
  std::optional<std::uint64_t> version = {};  // To start at; by default the newest.
  // Go to the store's newest version at the start; otherwise stay at the version that is held.
  bool catch_up = true;
  // For an engine with control of its own, besides its gate; none: the gate alone.
  EngineHooks hooks = {};
  KeyFiles keys = {};
};

// A tensor of the checkpoint, or a part of one, in this process's memory. The same name may come
// several times, for several parts; two tensors may be the same bytes (tied weights).
struct BoundTensor {
  // Name, dtype (as in safetensors, e.g. "BF16") and shape of the checkpoint's.
  std::string name = {};
  std::string dtype = {};
  std::vector<std::uint64_t> shape = {};
  std::byte* data = nullptr;      // Buffer; stays where it is while the receiver lives.
  std::uint64_t size = 0;         // Bytes of the buffer; without a view, those of dtype and shape.
  std::optional<View> view = {};  // How the elements lie in it; none: as in the checkpoint.
  // The same part at several places, here or at other ranks: which copy this is, of how many. All
  // are updated, number 0 counts in the proof and the others are held against it.
  std::uint32_t copy = 0;
  std::uint32_t copy_count = 1;
};

// Adds `sums` up over all ranks of an engine, modulo 2^64, and gives each rank the result in place;
// all ranks call it the same number of times with the same number of words. A failure, on every
// rank that is still there, when one does not come.
using SumOverRanks = std::function<Status(std::span<std::uint64_t> sums)>;

// For ranks that are threads of this process: what each of them passes as its `sum_over_ranks`.
std::vector<SumOverRanks> MakeLocalRanks(unsigned count, std::chrono::milliseconds deadline);

// How the GPU of a bound model takes updates (docs/cuda.md).
struct DeviceOptions {
  // Who decodes Snappy and LZ4: "engine" (the decompression engine), "multiprocessors", "nvcomp" or
  // "processor"; empty: the first of these that there is, without nvCOMP.
  std::string decoder = {};
  // Bytes of the GPU's memory and of pinned memory of the host, together, that staging may take; an
  // update that does not fit is refused before the pause. 0: no bound.
  std::uint64_t memory_max = 0;
  // Buffers that updates share stay from one to the next. Otherwise each call takes them, also in
  // the pause.
  bool keep_slots = true;
};

struct BoundModel {
  std::vector<BoundTensor> tensors = {};
  // In whose memory all of them are: "cuda:0", "cuda:1", ... (addresses of that GPU, which the
  // process has in use already); empty: this process's own.
  std::string device = {};
  DeviceOptions device_options = {};
  // For an engine of several ranks, each with a receiver of its own that holds a part of the model.
  // Every rank makes the same calls in the same order; all prepare, apply and resume, or none does.
  SumOverRanks sum_over_ranks = {};
  // Changes whenever a buffer was freed, moved or replaced; asked before the weights are read and
  // before they are written, a few times an update. Another answer than at the start: nothing is
  // touched any more, and the receiver is not ready.
  std::function<std::uint64_t()> generation = {};
  // Runs `read` and returns what it returns, while no buffer can be freed or moved: a scrub reads
  // at times of its own, where nobody expects it, a chunk at each call. None: buffers stay for as
  // long as the receiver lives.
  std::function<Status(const std::function<Status()>& read)> hold_still = {};
  // Returns once nobody reads the weights until `open_gate`; on failure readers go on. Called from
  // the thread that applies.
  std::function<Status(std::chrono::milliseconds deadline)> close_gate = {};
  std::function<Status()> open_gate = {};
};

enum class ReceiverState : std::uint8_t {
  kIdle,
  kPreparing,
  kPrepared,
  kApplying,
  kApplied,
  kResuming,
  kResumed,
  kFailed,
  kAborted,
  kPoisoned,
};

// "IDLE", "PREPARING", ...: as in the endpoints.
std::string_view ReceiverStateName(ReceiverState state);

// One update, its sizes in bytes and its times in seconds. Of a rebuild: from the version that was
// held, with the pause from closing the gate for the checkpoint on; the rest is of the way from the
// checkpoint.
struct UpdateReport {
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  std::uint64_t steps = 0;  // Published deltas that were joined into one.
  std::uint64_t payload_bytes = 0;
  std::uint64_t staged_bytes = 0;
  // The most that staging has held so far of a GPU's memory and of pinned memory of the host; 0
  // without a GPU.
  std::uint64_t device_bytes = 0;
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_elements = 0;
  double fetch_s = 0;
  double stage_s = 0;
  double preflight_s = 0;
  double gate_s = 0;   // From closing the gate until no engine was inside.
  double apply_s = 0;  // Changed bytes written and proven.
  double pause_s = 0;  // From closing the gate until it was open again.
  // The same moments, in nanoseconds of the machine's monotonic clock; 0 where nobody was held.
  std::uint64_t pause_started_ns = 0;
  std::uint64_t fence_completed_ns = 0;
  std::uint64_t resumed_ns = 0;
  std::vector<std::string> flushed_caches;  // That the engine's hooks reset.
};

struct ReceiverStatus {
  std::string name;  // Of the segment.
  ReceiverState state = ReceiverState::kIdle;
  bool ready = false;   // The bytes are the version's, proven, and the gate is open.
  std::string message;  // Why, when failed, aborted, poisoned or not ready.
  StatusCode failure = StatusCode::kOk;  // Of the update that failed, aborted or poisoned.
  std::string session;                   // Of the update that runs or ran last.
  std::string manifest_sha256;           // As that update was asked for.
  std::string lineage;
  std::uint64_t version = 0;
  // Of the update that runs, failed or ended last; `target_version` 0 while one is prepared for the
  // newest and that is not known yet. Both `version` where there was none.
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  std::string digest;  // Of the version held, 32 hexadecimal digits.
  std::string plan_digest;
  std::uint64_t model_bytes = 0;
  std::string decoder;   // Who decodes on a GPU, as in DeviceOptions; empty without one.
  unsigned engines = 0;  // Attached now.
  std::uint64_t applied_count = 0;
  std::uint64_t scrub_passes = 0;  // Whole scans that agreed.
  std::uint64_t scrub_faults = 0;
  UpdateReport last;  // The last update that was applied.
};

// What an apply asks of the engine. Without hooks an engine sees the version at the gate and drops
// by it what it has cached, so that `flush_cache` asks for nothing more.
struct ApplyChoices {
  bool flush_cache = true;
  bool abort_all_requests = false;  // Unsupported without hooks.
};

struct PrepareRequest {
  std::string session = {};                          // Any name; repeated requests are known by it.
  std::optional<std::uint64_t> base_version = {};    // Refused if another one is held.
  std::optional<std::uint64_t> target_version = {};  // By default the newest.
  std::string plan_digest = {};                      // Refused if the plan is another; empty: any.
  std::string manifest_sha256 = {};                  // Of the target's manifest object; empty: any.

  bool operator==(const PrepareRequest&) const = default;
};

// Thread-safe.
class Receiver {
 public:
  // Takes the segment over, or makes one from the checkpoint; then catches up with the store's
  // newest version, unless `options.catch_up` is unset. The gate is open when this returns.
  // Tainted: the segment is poisoned and `options.rebuild` was not set.
  static Result<std::unique_ptr<Receiver>> Open(const ReceiverOptions& options);
  // The same for weights of this process, which are some version of the lineage already (or of one
  // to come); `options.name` and `options.rebuild` are not looked at, and `options.checkpoint` only
  // by Rebuild(). InvalidArgument for tensors that overlap, do not fit their view, are not in the
  // plan, or are missing (with several ranks: at all of them). VersionMismatch for weights that are
  // no version under their views.
  static Result<std::unique_ptr<Receiver>> Open(const ReceiverOptions& options, BoundModel model);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Begins to prepare and returns at once. Unavailable while another update runs.
  Status Prepare(const PrepareRequest& request);
  // Waits until nothing is being prepared; the outcome of the prepare.
  Status WaitPrepared();
  // Applies what is prepared. Unavailable, still prepared: the engine did not pause, or the gate
  // did not close in time. Unavailable or Unsupported, applied: a cache was not flushed or the
  // engine not told the version; the engine stays paused, and the call may be repeated, for the
  // rest alone (without `flush_cache` too). Tainted: poisoned.
  Status Apply(const std::string& session, const ApplyChoices& choices = {});
  // Opens the gate after an apply and lets the engine go on, or (`keep_pause`, with hooks) leaves
  // that to the caller. Unavailable while an apply still owes the engine something.
  Status Resume(const std::string& session, bool keep_pause = false);
  // Gives up a prepare or what it made. A server of a store that says nothing keeps it from that
  // for a second at most.
  Status Abort(const std::string& session);
  // Forgets an update that failed, was aborted or has resumed, and gives back what staging holds of
  // a GPU's memory and of pinned memory.
  Status Clear();

  // OK unless the weights are known to be no version, so that what is computed with them is worth
  // nothing: Corruption where a scan found other bytes, Tainted where an apply or a rebuild failed,
  // VersionMismatch where a lineage has appeared that they are not of. Some nanoseconds, for those
  // who ask before each step; calls nothing of the model's.
  Status CheckWeights() const;

  // All of it at once, waiting for the end.
  Result<UpdateReport> Update(const PrepareRequest& request, const ApplyChoices& choices = {});
  // Reads the checkpoint again and goes to `target_version` (by default the newest).
  Status Rebuild(std::optional<std::uint64_t> target_version);
  // Before the receiver goes, for engines that live on: an update that is applied is finished (what
  // is owed, then the gate, then the engine's own pause), one that is prepared given up. On failure
  // the engine stays held, as it would without this.
  Status Release();
  // From now on looks for newer versions at this interval and takes them. InvalidArgument for one
  // of several ranks: they are told which version to take, together.
  Status Follow(std::chrono::milliseconds interval);

  // From any thread, while others wait in calls: from now on no server of a store is waited for,
  // and what waits for one ends within about a second (Unavailable). For who is to close the
  // receiver, whose destructor does it too. A caller's own calls: segue/give_up.h.
  void GiveUpStore();

  ReceiverStatus status() const;
  ReceiverCounts counts() const;
  // Versions that the store offers now, ascending.
  Result<std::vector<std::uint64_t>> Versions() const;

 private:
  class Impl;
  friend struct ReceiverInternals;
  explicit Receiver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Ends the shared memory segment `name`; success when there is none. Steps that run end on what
// they read; no other begins there: engines are told to attach anew.
Status RemoveSegment(const std::string& name);

}  // namespace segue
