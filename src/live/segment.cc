// SPDX-License-Identifier: Apache-2.0
//
// Segment: made, opened, and the record of its version.
#include "live/segment.h"

#include <unistd.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace segue {
namespace {

// Which process that is it has written itself, by its own count; one that has just made the object
// has not yet.
Status HeldByOther(const SharedMemory& object) {
  std::uint32_t process = 0;
  const Status read =
      object.Read(segment_field::kReceiver, std::as_writable_bytes(std::span(&process, 1)));
  const bool is_known = read.ok() && process != 0;
  return Unavailable(object.Describe() + " is held by a receiver that lives" +
                     (is_known ? " (process " + std::to_string(process) + ")" : ""));
}

// Why a name that is taken cannot be used.
Status Taken(const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const SharedMemory object, SharedMemory::Open(name));
  if (object.IsLockedByOther(kReceiverLock)) return HeldByOther(object);
  return InvalidArgument(object.Describe() +
                         " exists without a receiver: open it to go on with its weights, or "
                         "remove it first");
}

}  // namespace

Result<std::unique_ptr<Segment>> Segment::Create(const std::string& name, const Plan& plan,
                                                 const std::string& lineage, unsigned slot_count) {
  SEGUE_ASSIGN_OR_RETURN(SegmentContents contents, MakeSegmentContents(plan, lineage, slot_count));
  SEGUE_ASSIGN_OR_RETURN(SharedMemory object, CreateObject(name));
  SharedMapping mapping;
  if (Status status = Fill(object, contents, mapping); !status.ok()) {
    (void)SharedMemory::Remove(name).ok();
    return status;
  }
  return std::unique_ptr<Segment>(
      new Segment(std::move(object), std::move(mapping), std::move(contents)));
}

Result<SharedMemory> Segment::CreateObject(const std::string& name) {
  Result<SharedMemory> object = SharedMemory::Create(name);
  if (!object.ok()) {
    return object.status().code() == StatusCode::kUnavailable ? Taken(name) : object.status();
  }
  // Another that opened the name first is about to refuse it as unfinished; it stays theirs.
  SEGUE_ASSIGN_OR_RETURN(const bool locked, object->TryLock(kReceiverLock));
  if (!locked) return HeldByOther(*object);
  return object;
}

Status Segment::Fill(SharedMemory& object, const SegmentContents& contents,
                     SharedMapping& mapping) {
  SEGUE_RETURN_IF_ERROR(object.Allocate(contents.layout.segment_size));
  SEGUE_ASSIGN_OR_RETURN(mapping, SharedMapping::Map(object, 0, contents.layout.segment_size,
                                                     SharedMapping::Mode::kReadWrite));
  mapping.AdviseHugePages(contents.layout.weights_offset);
  WriteSegment(contents, mapping.data());
  return {};
}

Result<std::unique_ptr<Segment>> Segment::Open(const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(SharedMemory object, SharedMemory::Open(name));
  SEGUE_ASSIGN_OR_RETURN(const bool locked, object.TryLock(kReceiverLock));
  if (!locked) return HeldByOther(object);
  if (object.IsRemoved()) return NotFound(object.Describe() + " was removed just now");
  SEGUE_ASSIGN_OR_RETURN(const bool whole, IsSegmentWhole(object));
  if (!whole) {
    return Corruption(object.Describe() +
                      " was never finished by the receiver that made it: remove it");
  }
  SEGUE_ASSIGN_OR_RETURN(const bool removed, IsSegmentRemoved(object));
  if (removed) {
    if (!object.IsRemoved()) SEGUE_RETURN_IF_ERROR(SharedMemory::Remove(name));
    return NotFound(object.Describe() + " was being removed");
  }
  SEGUE_ASSIGN_OR_RETURN(SegmentContents contents, ReadSegment(object));
  SEGUE_ASSIGN_OR_RETURN(
      SharedMapping mapping,
      SharedMapping::Map(object, 0, contents.layout.segment_size, SharedMapping::Mode::kReadWrite));
  mapping.AdviseHugePages(contents.layout.weights_offset);
  std::unique_ptr<Segment> segment(
      new Segment(std::move(object), std::move(mapping), std::move(contents)));
  segment->words_.EndRecord();
  return segment;
}

Status Segment::Remove(const std::string& name) {
  Result<SharedMemory> object = SharedMemory::Open(name);
  // What is not there or no segment has no engines.
  const bool whole = object.ok() && IsSegmentWhole(*object).ok() && *IsSegmentWhole(*object);
  if (whole) {
    SEGUE_ASSIGN_OR_RETURN(
        const SharedMapping head,
        SharedMapping::Map(*object, 0, kSlotsOffset, SharedMapping::Mode::kReadWrite));
    SharedGate::CloseForGood(SegmentWords(head.data()));
  }
  return SharedMemory::Remove(name);
}

Segment::Segment(SharedMemory object, SharedMapping mapping, SegmentContents contents)
    : object_(std::move(object)),
      mapping_(std::move(mapping)),
      contents_(std::move(contents)),
      words_(mapping_.data()),
      gate_(object_, words_, contents_.layout.slot_count) {
  words_.receiver().store(static_cast<std::uint32_t>(::getpid()));
}

MutableModelView Segment::view() {
  std::vector<std::byte*> tensors;
  tensors.reserve(contents_.tensor_offsets.size());
  for (const std::uint64_t offset : contents_.tensor_offsets) {
    tensors.push_back(mapping_.data() + offset);
  }
  return MutableModelView(std::move(tensors));
}

LiveVersion Segment::version() const {
  const SegmentRecord record = words_.Record();
  return {contents_.lineage, record.version, record.target_version, record.digest,
          record.applied_count};
}

void Segment::CollapseToHugePages() {
  mapping_.CollapseToHugePages(contents_.layout.weights_offset);
}

unsigned Segment::engine_count() const {
  unsigned count = 0;
  for (unsigned slot = 0; slot < contents_.layout.slot_count; ++slot) {
    count += object_.IsLockedByOther(SlotLock(slot)) ? 1 : 0;
  }
  return count;
}

}  // namespace segue
