// SPDX-License-Identifier: Apache-2.0
//
// Segment header: laid out, written, read and checked.
#include "live/segment_header.h"

#include <sched.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "delta/manifest.h"

namespace segue {
namespace {

namespace field = segment_field;

using Head = std::array<std::byte, kSlotsOffset>;

static_assert(SegmentWords::Word::is_always_lock_free);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

// A writer that lives needs far less; one that died would hold readers for ever.
constexpr int kRecordTriesMax = 1000;
constexpr std::chrono::milliseconds kOwnRecordWaitMax(200);

std::optional<std::uint64_t> RoundUp(std::uint64_t value, std::uint64_t alignment) {
  const std::optional<std::uint64_t> sum = CheckedAdd(value, alignment - 1);
  return sum ? std::optional(*sum / alignment * alignment) : std::nullopt;
}

Status Fault(const SharedMemory& object, const std::string& what, std::uint64_t value) {
  return Corruption(object.Describe() + ": " + what + " is " + std::to_string(value) +
                    ", which cannot be; remove the segment and make it anew");
}

// Sections lie in this order and do not overlap: head, slots, plan, offsets, weights, end.
Status CheckLayout(const SharedMemory& object, const SegmentLayout& layout) {
  const auto fault = [&object](const std::string& what, std::uint64_t value) {
    return Fault(object, what, value);
  };
  if (layout.slot_count == 0 || layout.slot_count > kSlotCountMax) {
    return fault("slot_count", layout.slot_count);
  }
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, object.Size());
  if (layout.segment_size != size) return fault("segment_size", layout.segment_size);
  if (layout.weights_offset >= size || layout.weights_offset % kWeightsAlignment != 0) {
    return fault("weights_offset", layout.weights_offset);
  }
  if (layout.plan_offset < kSlotsOffset + layout.slot_count * kSlotSize ||
      layout.plan_offset > layout.weights_offset) {
    return fault("plan_offset", layout.plan_offset);
  }
  if (layout.plan_size > limits::kPlanSizeMax ||
      layout.plan_size > layout.weights_offset - layout.plan_offset) {
    return fault("plan_size", layout.plan_size);
  }
  if (layout.offsets_offset < layout.plan_offset + layout.plan_size ||
      layout.offsets_offset > layout.weights_offset ||
      layout.offsets_offset % sizeof(std::uint64_t) != 0) {
    return fault("offsets_offset", layout.offsets_offset);
  }
  return {};
}

Status CheckWords(const SharedMemory& object, const Head& head) {
  const auto gate = LoadLittle<std::uint32_t>(&head[field::kGate]);
  if (gate > kGateRemoved) return Fault(object, "gate", gate);
  const auto phase = LoadLittle<std::uint32_t>(&head[field::kPhase]);
  if (phase > static_cast<std::uint32_t>(Phase::kDue)) return Fault(object, "phase", phase);
  const auto version = LoadLittle<std::uint64_t>(&head[field::kVersion]);
  if (version > limits::kVersionMax) return Fault(object, "version", version);
  const auto target = LoadLittle<std::uint64_t>(&head[field::kTargetVersion]);
  if (target > limits::kVersionMax) return Fault(object, "target_version", target);
  return {};
}

Result<std::string> ReadLineage(const SharedMemory& object, const Head& head) {
  const auto size = LoadLittle<std::uint64_t>(&head[field::kLineageSize]);
  if (size == 0 || size > limits::kLineageNameSizeMax) return Fault(object, "lineage_size", size);
  std::string lineage(AsText(ByteSpan(head).subspan(field::kLineage, size)));
  const Status status = CheckLineageName(lineage);
  if (!status.ok()) return Corruption(object.Describe() + ": lineage: " + status.message());
  return lineage;
}

Result<Plan> ReadPlan(const SharedMemory& object, const SegmentLayout& layout) {
  ByteVector bytes(layout.plan_size);
  SEGUE_RETURN_IF_ERROR(object.Read(layout.plan_offset, bytes));
  Result<Plan> plan = Plan::Parse(bytes);
  return plan.ok() ? std::move(plan) : plan.status().WithContext(object.Describe());
}

// In the plan's order, one behind the other.
Status ReadTensorOffsets(const SharedMemory& object, SegmentContents& contents) {
  const SegmentLayout& layout = contents.layout;
  const std::uint64_t count = contents.plan.tensors().size();
  if (count > (layout.weights_offset - layout.offsets_offset) / sizeof(std::uint64_t)) {
    return Fault(object, "offsets_offset", layout.offsets_offset);
  }
  contents.tensor_offsets.resize(count);
  SEGUE_RETURN_IF_ERROR(object.Read(layout.offsets_offset,
                                    std::as_writable_bytes(std::span(contents.tensor_offsets))));
  std::uint64_t end = layout.weights_offset;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = contents.tensor_offsets[i];
    const std::uint64_t size = contents.plan.tensors()[i].size;
    if (offset < end || offset % kTensorAlignment != 0 || offset > layout.segment_size ||
        size > layout.segment_size - offset) {
      return Fault(object, "the offset of tensor " + std::to_string(i), offset);
    }
    end = offset + size;
  }
  return {};
}

SegmentLayout ParseLayout(const Head& head) {
  SegmentLayout layout;
  layout.slot_count = LoadLittle<std::uint32_t>(&head[field::kSlotCount]);
  layout.segment_size = LoadLittle<std::uint64_t>(&head[field::kSegmentSize]);
  layout.plan_offset = LoadLittle<std::uint64_t>(&head[field::kPlanOffset]);
  layout.plan_size = LoadLittle<std::uint64_t>(&head[field::kPlanSize]);
  layout.offsets_offset = LoadLittle<std::uint64_t>(&head[field::kOffsetsOffset]);
  layout.weights_offset = LoadLittle<std::uint64_t>(&head[field::kWeightsOffset]);
  return layout;
}

}  // namespace

Result<SegmentContents> MakeSegmentContents(const Plan& plan, const std::string& lineage,
                                            unsigned slot_count) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(lineage));
  if (slot_count == 0 || slot_count > kSlotCountMax) {
    return InvalidArgument("a segment has 1 to " + std::to_string(kSlotCountMax) +
                           " engine slots, not " + std::to_string(slot_count));
  }
  SegmentContents contents{{}, plan, {}, lineage};
  SegmentLayout& layout = contents.layout;
  layout.slot_count = slot_count;
  layout.plan_offset = kSlotsOffset + slot_count * kSlotSize;
  layout.plan_size = plan.object().size();
  // Bounded by the plan's limits, far from 2^64.
  layout.offsets_offset = *RoundUp(layout.plan_offset + layout.plan_size, sizeof(std::uint64_t));
  const std::uint64_t head_size =
      layout.offsets_offset + plan.tensors().size() * sizeof(std::uint64_t);
  layout.weights_offset = *RoundUp(head_size, kWeightsAlignment);
  std::uint64_t end = layout.weights_offset;
  for (const PlanTensor& tensor : plan.tensors()) {
    contents.tensor_offsets.push_back(end);
    // A plan has less than 2^63 bytes in 2^22 tensors, so no sum wraps.
    end = *RoundUp(end + tensor.size, kTensorAlignment);
  }
  // Never without a weights section, even for a plan of nothing.
  layout.segment_size = *RoundUp(end + (end == layout.weights_offset), kWeightsAlignment);
  if (layout.segment_size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return ResourceExhausted("a segment of " + std::to_string(layout.segment_size) + " bytes");
  }
  return contents;
}

Result<bool> IsSegmentWhole(const SharedMemory& object) {
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, object.Size());
  if (size < kSlotsOffset) {
    if (size == 0) return false;
    return Corruption(object.Describe() + " has " + std::to_string(size) +
                      " bytes, less than a header");
  }
  std::uint64_t magic = 0;
  SEGUE_RETURN_IF_ERROR(object.Read(field::kMagic, std::as_writable_bytes(std::span(&magic, 1))));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (magic != 0 && magic != kSegmentMagic) {
    return Corruption(object.Describe() + " does not begin with SEGUELIV");
  }
  return magic == kSegmentMagic;
}

Result<bool> IsSegmentRemoved(const SharedMemory& object) {
  std::uint32_t gate = 0;
  SEGUE_RETURN_IF_ERROR(object.Read(field::kGate, std::as_writable_bytes(std::span(&gate, 1))));
  return gate == kGateRemoved || object.IsRemoved();
}

Result<bool> IsSegmentPoisoned(const SharedMemory& object) {
  std::uint32_t phase = 0;
  SEGUE_RETURN_IF_ERROR(object.Read(field::kPhase, std::as_writable_bytes(std::span(&phase, 1))));
  return phase == static_cast<std::uint32_t>(Phase::kPoisoned);
}

Result<SegmentContents> ReadSegment(const SharedMemory& object) {
  Head head;
  SEGUE_RETURN_IF_ERROR(object.Read(0, head));
  const auto format_version = LoadLittle<std::uint32_t>(&head[field::kFormatVersion]);
  if (format_version != kSegmentFormatVersion) {
    return Unsupported(object.Describe() + " has format version " + std::to_string(format_version) +
                       ", expected " + std::to_string(kSegmentFormatVersion));
  }
  SegmentContents contents;
  contents.layout = ParseLayout(head);
  SEGUE_RETURN_IF_ERROR(CheckLayout(object, contents.layout));
  SEGUE_RETURN_IF_ERROR(CheckWords(object, head));
  SEGUE_ASSIGN_OR_RETURN(contents.lineage, ReadLineage(object, head));
  SEGUE_ASSIGN_OR_RETURN(contents.plan, ReadPlan(object, contents.layout));
  SEGUE_RETURN_IF_ERROR(ReadTensorOffsets(object, contents));
  return contents;
}

void WriteSegment(const SegmentContents& contents, std::byte* base) {
  const SegmentLayout& layout = contents.layout;
  StoreLittle(base + field::kFormatVersion, kSegmentFormatVersion);
  StoreLittle(base + field::kSlotCount, static_cast<std::uint32_t>(layout.slot_count));
  StoreLittle(base + field::kSegmentSize, layout.segment_size);
  StoreLittle(base + field::kPlanOffset, layout.plan_offset);
  StoreLittle(base + field::kPlanSize, layout.plan_size);
  StoreLittle(base + field::kOffsetsOffset, layout.offsets_offset);
  StoreLittle(base + field::kWeightsOffset, layout.weights_offset);
  StoreLittle(base + field::kGate, kGateClosed);
  StoreLittle(base + field::kPhase, static_cast<std::uint32_t>(Phase::kLoading));
  StoreLittle(base + field::kLineageSize, static_cast<std::uint64_t>(contents.lineage.size()));
  const auto copy = [base](std::uint64_t offset, ByteSpan bytes) {
    if (!bytes.empty()) std::memcpy(base + offset, bytes.data(), bytes.size());
  };
  copy(field::kLineage, AsBytes(contents.lineage));
  copy(layout.plan_offset, contents.plan.object());
  copy(layout.offsets_offset, std::as_bytes(std::span(contents.tensor_offsets)));
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base + field::kMagic)).store(kSegmentMagic);
}

bool SegmentWords::ReadRecord(SegmentRecord& record) const {
  for (int i = 0; i < kRecordTriesMax; ++i) {
    const std::uint64_t before = Field(field::kSequence).load(std::memory_order_acquire);
    record.version = Field(field::kVersion).load(std::memory_order_relaxed);
    record.target_version = Field(field::kTargetVersion).load(std::memory_order_relaxed);
    record.digest.lane[0] = Field(field::kDigest).load(std::memory_order_relaxed);
    record.digest.lane[1] = Field(field::kDigest + 8).load(std::memory_order_relaxed);
    record.applied_count = Field(field::kAppliedCount).load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t after = Field(field::kSequence).load(std::memory_order_relaxed);
    if (before == after && before % 2 == 0) return true;
    ::sched_yield();
  }
  return false;
}

void SegmentWords::WriteRecord(const SegmentRecord& record) {
  const std::uint64_t sequence = Field(field::kSequence).load(std::memory_order_relaxed);
  Field(field::kSequence).store(sequence | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  // Each store is a release, so that they happen in this order whenever the process is stopped.
  Field(field::kVersion).store(record.version, std::memory_order_release);
  Field(field::kTargetVersion).store(record.target_version, std::memory_order_release);
  Field(field::kDigest).store(record.digest.lane[0], std::memory_order_release);
  Field(field::kDigest + 8).store(record.digest.lane[1], std::memory_order_release);
  Field(field::kAppliedCount).store(record.applied_count, std::memory_order_release);
  Field(field::kSequence).store((sequence | 1) + 1, std::memory_order_release);
}

void SegmentWords::EndRecord() {
  const std::uint64_t sequence = Field(field::kSequence).load();
  if (sequence % 2 != 0) Field(field::kSequence).store(sequence + 1);
}

SegmentRecord SegmentWords::Record() const {
  // The writer is a thread of this process or the caller itself, and done at once. But engines may
  // write to this page, and what a stray write of theirs leaves must not hold anybody up.
  SegmentRecord record;
  const auto deadline = std::chrono::steady_clock::now() + kOwnRecordWaitMax;
  while (!ReadRecord(record) && std::chrono::steady_clock::now() < deadline) {
  }
  return record;
}

void SegmentWords::Announce(std::uint64_t target_version, const std::vector<std::string>& mates) {
  std::string text;
  for (const std::string& mate : mates) text += (text.empty() ? "" : ",") + mate;
  SEGUE_CHECK(text.size() <= kMatesSizeMax);
  Field(field::kMatesSize).store(text.size());
  std::memcpy(base_ + field::kMates, text.data(), text.size());
  SegmentRecord record = Record();
  record.target_version = target_version;
  WriteRecord(record);
  SetPhase(Phase::kPending);
}

std::vector<std::string> SegmentWords::Mates() const {
  std::vector<std::string> mates;
  const std::uint64_t size = Field(field::kMatesSize).load();
  if (size == 0 || size > kMatesSizeMax) return mates;
  std::istringstream text(std::string(reinterpret_cast<const char*>(base_ + field::kMates), size));
  for (std::string mate; std::getline(text, mate, ',');) mates.push_back(mate);
  return mates;
}

void SegmentWords::BeginApply(std::uint64_t target_version) {
  SegmentRecord record = Record();
  record.target_version = target_version;
  WriteRecord(record);
  SetPhase(Phase::kApplying);
}

void SegmentWords::CommitVersion(std::uint64_t version, const Digest& digest) {
  SegmentRecord record = Record();
  record.version = version;
  record.target_version = version;
  record.digest = digest;
  if (phase().load() == static_cast<std::uint32_t>(Phase::kApplying)) ++record.applied_count;
  WriteRecord(record);
  SetPhase(Phase::kServing);
}

void SegmentWords::SetPhase(Phase value) {
  phase().store(static_cast<std::uint32_t>(value));
  // Neither the compiler nor the processor may move writes of weights to before this.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace segue
