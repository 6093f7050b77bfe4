// SPDX-License-Identifier: Apache-2.0
//
// Engine weights: the engine's side of a segment (docs/protocol.md, section 6). Accesses to gate,
// drained and inside are sequentially consistent (the default); shared_gate.h has the other side.
#include "segue/engine.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "checkpoint/dtype.h"
#include "checkpoint/tensor.h"
#include "live/futex.h"
#include "live/segment_header.h"
#include "live/shared_memory.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

// Between looks for a segment that is not there yet.
// How often who waits at the gate asks whether to go on.
constexpr milliseconds kStopLook{100};
constexpr milliseconds kLookWaitFirst{1};
constexpr milliseconds kLookWaitMax{20};

// A receiver that buries a dead engine holds the slot's lock for a moment, so one look at all slots
// may find none free though there is one.
constexpr int kSlotLookCount = 3;

struct FoundSegment {
  SharedMemory object;
  bool whole = false;
  bool removed = false;
};

Result<FoundSegment> Look(const std::string& name) {
  FoundSegment found;
  SEGUE_ASSIGN_OR_RETURN(found.object, SharedMemory::Open(name));
  SEGUE_ASSIGN_OR_RETURN(found.whole, IsSegmentWhole(found.object));
  if (found.whole) {
    SEGUE_ASSIGN_OR_RETURN(found.removed, IsSegmentRemoved(found.object));
  }
  return found;
}

Result<SharedMemory> AwaitSegment(const std::string& name, milliseconds deadline,
                                  const std::function<bool()>& stop) {
  const SteadyTime limit = DeadlineAfter(deadline);
  milliseconds wait = kLookWaitFirst;
  for (;;) {
    Result<FoundSegment> found = Look(name);
    if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
    if (found.ok() && found->whole && !found->removed) return std::move(found->object);
    if (stop && stop()) {
      return Unavailable("the wait for segment '" + name + "' was ended before it was there");
    }
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now >= limit) {
      const std::string waited = " after " + std::to_string(deadline.count()) + " ms";
      const bool unfinished = found.ok() && !found->whole;
      std::string what = unfinished ? "the receiver of " + found->object.Describe()
                                    : "there was no segment '" + name + "'";
      if (unfinished) what += " had not finished its header";
      return NotFound(what.append(waited));
    }
    std::this_thread::sleep_until(std::min(limit, now + wait));
    wait = std::min(2 * wait, kLookWaitMax);
  }
}

Result<unsigned> TakeSlot(SharedMemory& object, unsigned slot_count) {
  for (int look = 0; look < kSlotLookCount; ++look) {
    for (unsigned slot = 0; slot < slot_count; ++slot) {
      SEGUE_ASSIGN_OR_RETURN(const bool taken, object.TryLock(SlotLock(slot)));
      if (taken) return slot;
    }
    std::this_thread::sleep_for(kLookWaitFirst);
  }
  return ResourceExhausted("all " + std::to_string(slot_count) + " engine slots of " +
                           object.Describe() + " are taken");
}

}  // namespace

struct EngineWeights::Parts {
  SharedMemory object;
  SharedMapping control;  // What lies below the weights.
  SharedMapping weights;
  std::string lineage;
  std::vector<EngineTensor> tensors;
  SegmentWords words;
  unsigned slot = 0;

  void LeaveSlot();
  Status EnterWhenOpen(milliseconds deadline, const std::function<bool()>& stop);
  Status WhyClosed(SteadyTime since, milliseconds deadline) const;
};

Result<EngineWeights> EngineWeights::Attach(const std::string& name, milliseconds deadline) {
  return AttachUnless({}, name, deadline);
}

Result<EngineWeights> EngineWeights::AttachUnless(const std::function<bool()>& stop,
                                                  const std::string& name, milliseconds deadline) {
  CountForks();
  auto parts = std::make_unique<Parts>();
  SEGUE_ASSIGN_OR_RETURN(parts->object, AwaitSegment(name, deadline, stop));
  SEGUE_ASSIGN_OR_RETURN(SegmentContents contents, ReadSegment(parts->object));
  const SegmentLayout& layout = contents.layout;
  SEGUE_ASSIGN_OR_RETURN(parts->control, SharedMapping::Map(parts->object, 0, layout.weights_offset,
                                                            SharedMapping::Mode::kReadWrite));
  SEGUE_ASSIGN_OR_RETURN(parts->weights,
                         SharedMapping::Map(parts->object, layout.weights_offset,
                                            layout.segment_size - layout.weights_offset,
                                            SharedMapping::Mode::kReadOnly));
  parts->weights.AdviseHugePages();
  parts->words = SegmentWords(parts->control.data());
  parts->lineage = std::move(contents.lineage);
  for (std::size_t i = 0; i < contents.tensor_offsets.size(); ++i) {
    const PlanTensor& tensor = contents.plan.tensors()[i];
    parts->tensors.push_back(
        {tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)), tensor.spec.shape,
         parts->weights.data() + (contents.tensor_offsets[i] - layout.weights_offset),
         tensor.size});
  }
  SEGUE_ASSIGN_OR_RETURN(parts->slot, TakeSlot(parts->object, layout.slot_count));
  parts->words.inside(parts->slot).store(0);
  return EngineWeights(std::move(parts));
}

// Once for the process and its children.
void EngineWeights::CountForks() {
  static const int failed = ::pthread_atfork(nullptr, nullptr, [] { ++fork_count_; });
  SEGUE_CHECK(failed == 0);
}

EngineWeights::EngineWeights(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
EngineWeights::EngineWeights(EngineWeights&& other) noexcept = default;
EngineWeights& EngineWeights::operator=(EngineWeights&& other) noexcept = default;
EngineWeights::~EngineWeights() = default;

const std::vector<EngineTensor>& EngineWeights::tensors() const { return parts_->tensors; }

const EngineTensor* EngineWeights::Find(std::string_view name) const {
  const auto& tensors = parts_->tensors;
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const EngineTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

Status EngineWeights::Enter(milliseconds deadline) { return EnterUnless(nullptr, deadline); }

Status EngineWeights::EnterUnless(const std::function<bool()>& stop, milliseconds deadline) {
  Parts& parts = *parts_;
  parts.words.inside(parts.slot).fetch_add(1);
  if (parts.words.gate().load() == kGateOpen) [[likely]]
    return {};
  return parts.EnterWhenOpen(deadline, stop);
}

bool EngineWeights::TryEnter() {
  Parts& parts = *parts_;
  parts.words.inside(parts.slot).fetch_add(1);
  if (parts.words.gate().load() == kGateOpen) [[likely]]
    return true;
  parts.LeaveSlot();
  return false;
}

void EngineWeights::Leave() { parts_->LeaveSlot(); }

Result<EngineWeights::Step> EngineWeights::BeginStep(milliseconds deadline) {
  SEGUE_RETURN_IF_ERROR(Enter(deadline));
  return Step(*this);
}

Result<EngineWeights::Step> EngineWeights::BeginStepUnless(const std::function<bool()>& stop,
                                                           milliseconds deadline) {
  SEGUE_RETURN_IF_ERROR(EnterUnless(stop, deadline));
  return Step(*this);
}

EngineVersion EngineWeights::version() const {
  const SegmentWords& words = parts_->words;
  SegmentRecord record;
  const bool whole = words.ReadRecord(record);
  const bool serving = static_cast<Phase>(words.phase().load()) == Phase::kServing;
  return {parts_->lineage, record.version, whole ? record.digest.ToHex() : std::string(),
          whole && serving};
}

void EngineWeights::Parts::LeaveSlot() {
  const std::uint32_t before = words.inside(slot).fetch_sub(1);
  // Left more often than entered; or taken for dead, as somebody closed our descriptor.
  SEGUE_CHECK(before != 0);
  if (words.gate().load() == kGateOpen) [[likely]]
    return;
  words.drained().fetch_add(1);
  FutexWakeAll(words.drained_address());
}

// Begins inside a closed gate.
Status EngineWeights::Parts::EnterWhenOpen(milliseconds deadline,
                                           const std::function<bool()>& stop) {
  const SteadyTime start = std::chrono::steady_clock::now();
  const SteadyTime limit = DeadlineAfter(deadline);
  for (;;) {
    LeaveSlot();
    for (std::uint32_t gate = words.gate().load(); gate != kGateOpen; gate = words.gate().load()) {
      const bool stopped = stop && stop();
      const bool removed = gate == kGateRemoved;
      if (removed || stopped || std::chrono::steady_clock::now() >= limit)
        return WhyClosed(start, deadline);
      FutexWait(words.gate_address(), gate,
                stop ? std::min(limit, DeadlineAfter(kStopLook)) : limit);
    }
    words.inside(slot).fetch_add(1);
    if (words.gate().load() == kGateOpen) return {};
  }
}

// Waited until the deadline, until it was stopped, or until the gate was closed for good.
Status EngineWeights::Parts::WhyClosed(SteadyTime since, milliseconds deadline) const {
  const auto waited = std::min(
      deadline, std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - since));
  if (words.gate().load() == kGateRemoved || object.IsRemoved()) {
    return NotFound(object.Describe() + " was removed: attach to the one that replaces it");
  }
  static constexpr std::string_view kPhases[] = {"loading",  "serving", "applying",
                                                 "poisoned", "pending", "due"};
  const std::uint32_t phase = words.phase().load();
  return Unavailable(object.Describe() + ": the gate was still closed after " +
                     std::to_string(waited.count()) + " ms (phase " +
                     std::string(phase < std::size(kPhases) ? kPhases[phase] : "unknown") +
                     (object.IsLockedByOther(kReceiverLock) ? "" : "; no receiver lives") + ")");
}

}  // namespace segue
