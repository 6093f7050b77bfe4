// SPDX-License-Identifier: Apache-2.0
//
// SharedGate: the receiver's side of the gate of a segment; include/segue/engine.h has the other.
// How the two meet and why it cannot miss is in docs/protocol.md, section 6.
//
// Close() waits for engines that are inside and for nobody else: those that arrive wait outside,
// and those that died are told by their locks and counted out. It keeps no state of its own, so
// whoever receives next goes on with the gate as it is.
#pragma once

#include <chrono>
#include <cstdint>

#include "live/gate.h"
#include "live/segment_header.h"
#include "live/shared_memory.h"

namespace segue {

class SharedGate : public Gate {
 public:
  // `object` must outlive the gate.
  SharedGate(SharedMemory& object, SegmentWords words, unsigned slot_count)
      : object_(object), words_(words), slot_count_(slot_count) {}

  // Closing a closed gate waits all the same; if that fails the gate stays closed.
  Status Close(std::chrono::milliseconds deadline) override;
  Status Open() override;
  // Before the segment's name goes: who waits, comes or would open it finds out, from here on.
  static void CloseForGood(SegmentWords words);
  // NotFound after that, as Close() and Open() are then.
  Status CheckThere() const;
  bool closed() const { return words_.gate().load() != kGateOpen; }

 private:
  std::uint32_t Set(std::uint32_t value);
  // Threads inside. Slots of dead engines are set to 0 if `bury` is set.
  Result<std::uint64_t> CountInside(bool bury);
  Result<bool> ClearIfDead(unsigned slot);
  Status WaitUntilEmpty(std::chrono::milliseconds deadline);

  SharedMemory& object_;
  SegmentWords words_;
  unsigned slot_count_;
};

}  // namespace segue
