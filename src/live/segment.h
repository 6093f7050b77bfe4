// SPDX-License-Identifier: Apache-2.0
//
// Segment: the receiver's hold on live weights in shared memory (docs/protocol.md, section 6).
// Whoever has one is the segment's only receiver, by a lock that ends with the process. The segment
// itself outlives this object; only Remove() ends it.
//
// Status calls (phase, version, engine_count) may come from any thread; what changes the segment
// comes from one thread at a time. Who writes through view() has closed the gate and begun an
// apply, or is loading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "live/gate.h"
#include "live/segment_header.h"
#include "live/shared_gate.h"
#include "live/shared_memory.h"
#include "segue/status.h"

namespace segue {

struct LiveVersion {
  std::string lineage;
  std::uint64_t version = 0;         // What the bytes are (serving) or were before (applying).
  std::uint64_t target_version = 0;  // What they are to become (applying), else as `version`.
  Digest digest;                     // At `version`.
  std::uint64_t applied_count = 0;
};

class Segment {
 public:
  // Phase loading, gate closed. Unavailable where a segment of that name has a live receiver,
  // InvalidArgument where it has none: that one is opened or removed. ResourceExhausted, and
  // nothing left behind, where shared memory is too small.
  static Result<std::unique_ptr<Segment>> Create(const std::string& name, const Plan& plan,
                                                 const std::string& lineage,
                                                 unsigned slot_count = 64);
  // With the gate as it was found; phase() says how to go on. NotFound; Unavailable where another
  // receiver lives; Corruption for a header that cannot be right.
  static Result<std::unique_ptr<Segment>> Open(const std::string& name);
  // Success when there is none. Receiver and engines keep what they have mapped, and its gate is
  // closed for good: no step begins there any more.
  static Status Remove(const std::string& name);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const Plan& plan() const { return contents_.plan; }
  MutableModelView view();
  // Moves the weights to huge pages where the kernel has them, whatever the mount of shared memory
  // says; engines profit too. Scattered writes took a third less time (random bytes of 2 GiB: 9.7
  // against 15.4 ns); the move takes about a second a gigabyte, so it is the caller's choice. At
  // any time, no failure.
  void CollapseToHugePages();
  Phase phase() const { return static_cast<Phase>(words_.phase().load()); }
  // Phase applying with version == target_version: the last receiver had proven all bytes and died
  // while it wrote the record; the digest is not to be believed then, the manifest's is.
  LiveVersion version() const;

  // Of an update of several lineages: target and the names of all segments, phase pending.
  void Announce(std::uint64_t target_version, const std::vector<std::string>& mates) {
    words_.Announce(target_version, mates);
  }
  std::vector<std::string> mates() const { return words_.Mates(); }
  // To be called with the gate closed, before the first byte is written: target, phase applying.
  void BeginApply(std::uint64_t target_version) { words_.BeginApply(target_version); }
  // After the proof: version and digest, phase serving.
  void CommitVersion(std::uint64_t version, const Digest& digest) {
    words_.CommitVersion(version, digest);
  }
  void SetPhase(Phase phase) { words_.SetPhase(phase); }

  SharedGate& gate() { return gate_; }
  // NotFound once it was removed.
  Status CheckThere() const { return gate_.CheckThere(); }
  // Engines attached now.
  unsigned engine_count() const;

 private:
  Segment(SharedMemory object, SharedMapping mapping, SegmentContents contents);
  static Result<SharedMemory> CreateObject(const std::string& name);
  static Status Fill(SharedMemory& object, const SegmentContents& contents, SharedMapping& mapping);

  SharedMemory object_;
  SharedMapping mapping_;
  SegmentContents contents_;
  SegmentWords words_;
  SharedGate gate_;
};

}  // namespace segue
