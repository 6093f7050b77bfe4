// SPDX-License-Identifier: Apache-2.0
//
// Segment header: where everything lies in a segment, the words that processes share, and the
// checks that a segment from outside must pass. docs/protocol.md, section 6, is normative.
//
// A segment may have been made by anyone: ReadSegment() compares every number with the object's
// size before it is used, copies what it returns, and reads with pread, so that an object that
// shrinks meanwhile is an error and not a signal.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.h"
#include "checkpoint/plan.h"
#include "live/shared_memory.h"
#include "segue/status.h"

namespace segue {

// Pending and due: an update of several lineages is to come, with the gate closed. Pending: perhaps
// not all of them have their target yet; due: all have, so it must be gone on with.
enum class Phase : std::uint32_t { kLoading, kServing, kApplying, kPoisoned, kPending, kDue };

// Lineages, and so segments, of one engine.
inline constexpr unsigned kGroupSizeMax = 16;
// As many names of segments, each 64 bytes long and one more for the comma.
inline constexpr std::uint64_t kMatesSizeMax = kGroupSizeMax * 65;

inline constexpr std::uint32_t kGateOpen = 0;
inline constexpr std::uint32_t kGateClosed = 1;
inline constexpr std::uint32_t kGateRemoved = 2;  // Closed for good.

// "SEGUELIV" as a little-endian number.
inline constexpr std::uint64_t kSegmentMagic = 0x56494c4555474553;
inline constexpr std::uint32_t kSegmentFormatVersion = 1;
inline constexpr unsigned kSlotCountMax = 1024;
inline constexpr std::uint64_t kSlotsOffset = 4096;
inline constexpr std::uint64_t kSlotSize = 64;
inline constexpr std::uint64_t kTensorAlignment = 256;
inline constexpr std::uint64_t kWeightsAlignment = 2ull << 20;

// Bytes of the object that are locked, far behind its end.
inline constexpr std::uint64_t kReceiverLock = 1ull << 62;
inline constexpr std::uint64_t SlotLock(unsigned slot) { return kReceiverLock + 1 + slot; }

// Offsets of header fields, for the code and for tests that damage them.
namespace segment_field {
inline constexpr std::uint64_t kMagic = 0, kFormatVersion = 8, kSlotCount = 12, kSegmentSize = 16,
                               kPlanOffset = 24, kPlanSize = 32, kOffsetsOffset = 40,
                               kWeightsOffset = 48, kGate = 64, kDrained = 128, kPhase = 192,
                               kReceiver = 196, kSequence = 200, kVersion = 208,
                               kTargetVersion = 216, kDigest = 224, kAppliedCount = 240,
                               kLineageSize = 248, kLineage = 256, kMatesSize = 384, kMates = 392;
}  // namespace segment_field

struct SegmentLayout {
  unsigned slot_count = 0;
  std::uint64_t segment_size = 0;
  std::uint64_t plan_offset = 0;
  std::uint64_t plan_size = 0;
  std::uint64_t offsets_offset = 0;
  std::uint64_t weights_offset = 0;
};

// What of a segment never changes after it is whole.
struct SegmentContents {
  SegmentLayout layout;
  Plan plan;
  std::vector<std::uint64_t> tensor_offsets;
  std::string lineage;
};

// The layout that a new segment gets. ResourceExhausted when it would not fit a file.
Result<SegmentContents> MakeSegmentContents(const Plan& plan, const std::string& lineage,
                                            unsigned slot_count);
// Whether the magic is there. Corruption when something else is.
Result<bool> IsSegmentWhole(const SharedMemory& object);
// Of a whole segment: the name is gone or about to go.
Result<bool> IsSegmentRemoved(const SharedMemory& object);
// Of a whole segment: it wants a rebuild.
Result<bool> IsSegmentPoisoned(const SharedMemory& object);
// Of a whole segment. Corruption, naming the field, for what cannot be right; Unsupported for
// another format version.
Result<SegmentContents> ReadSegment(const SharedMemory& object);
// Into fresh, zeroed memory at `base`; gate closed, phase loading. The magic is the last word.
void WriteSegment(const SegmentContents& contents, std::byte* base);

// What the sequence number guards.
struct SegmentRecord {
  std::uint64_t version = 0;
  std::uint64_t target_version = 0;
  Digest digest;
  std::uint64_t applied_count = 0;
};

// The shared words of the segment that is mapped at `base`.
class SegmentWords {
 public:
  using Word = std::atomic_ref<std::uint32_t>;

  explicit SegmentWords(std::byte* base = nullptr) : base_(base) {}

  std::uint32_t* gate_address() const { return At<std::uint32_t>(segment_field::kGate); }
  std::uint32_t* drained_address() const { return At<std::uint32_t>(segment_field::kDrained); }
  Word gate() const { return Word(*gate_address()); }
  Word drained() const { return Word(*drained_address()); }
  Word phase() const { return Word(*At<std::uint32_t>(segment_field::kPhase)); }
  Word receiver() const { return Word(*At<std::uint32_t>(segment_field::kReceiver)); }
  Word inside(unsigned slot) const {
    return Word(*At<std::uint32_t>(kSlotsOffset + slot * kSlotSize));
  }

  // True when the record is of one piece; false when its writer does not get to the end of it.
  bool ReadRecord(SegmentRecord& record) const;
  // For the receiver alone, one thread at a time. `version` is stored first: a receiver that dies
  // inside leaves either the old version and digest, or the new version.
  void WriteRecord(const SegmentRecord& record);
  // A dead receiver's unfinished record counts as written.
  void EndRecord();

  // The receiver's steps on record and phase, in the order of docs/protocol.md, section 6.
  SegmentRecord Record() const;
  // Target and mates, phase pending. `mates`: names of segments, each of which is as long as one
  // can be, at most kGroupSizeMax.
  void Announce(std::uint64_t target_version, const std::vector<std::string>& mates);
  void BeginApply(std::uint64_t target_version);
  void CommitVersion(std::uint64_t version, const Digest& digest);
  void SetPhase(Phase value);
  // As announced. None where they cannot be right.
  std::vector<std::string> Mates() const;

 private:
  using Word64 = std::atomic_ref<std::uint64_t>;

  template <typename T>
  T* At(std::uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  Word64 Field(std::uint64_t offset) const { return Word64(*At<std::uint64_t>(offset)); }

  std::byte* base_;
};

}  // namespace segue
