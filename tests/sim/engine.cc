// SPDX-License-Identifier: Apache-2.0
//
// Engine.
#include "sim/engine.h"

#include <cstring>

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenSteps(6);
// Longer than the receivers' deadline.
constexpr milliseconds kSlowStep(130);

bool IsOpen(SimSegment& segment) { return segment.words().gate().load() != kGateClosed; }

// False: the segment was removed.
bool Enter(World& world, SimSegment& segment, unsigned slot) {
  while (!segment.removed) {
    segment.Enter(slot);
    if (IsOpen(segment)) return true;
    segment.Leave(slot);
    (void)world.Await([&segment] { return IsOpen(segment) || segment.removed; });
  }
  return false;
}

// All or none, as EnterAll() in segue/enter_all.h.
bool EnterBoth(World& world, SimSegment& first, unsigned first_slot, SimSegment& second,
               unsigned second_slot) {
  while (!second.removed && Enter(world, first, first_slot)) {
    second.Enter(second_slot);
    if (IsOpen(second)) return true;
    second.Leave(second_slot);
    first.Leave(first_slot);
    (void)world.Await([&second] { return IsOpen(second) || second.removed; });
  }
  return false;
}

std::optional<std::uint64_t> VersionInRecord(SimSegment& segment) {
  SegmentRecord record;
  if (!segment.words().ReadRecord(record)) return std::nullopt;
  return record.version;
}

// A slot that its engine's death frees, as the kernel does with a lock.
class Slot {
 public:
  Slot(SimSegment& segment, const Process& process) : segment_(segment) {
    while (segment_.engines[number_] != nullptr) ++number_;
    segment_.engines[number_] = &process;
    segment_.words().inside(number_).store(0);
  }
  ~Slot() { segment_.engines[number_] = nullptr; }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  unsigned number() const { return number_; }

 private:
  SimSegment& segment_;
  unsigned number_ = 0;
};

}  // namespace

void ReadOnce(Site& site, SimSegment& segment, unsigned slot, const ReportedVersion& reported,
              const std::string& label) {
  World& world = site.world;
  if (!Enter(world, segment, slot)) return;
  const auto version = reported();
  const auto expected = version ? site.oracle.Find(*version) : nullptr;
  const auto violate = [&](const std::string& what) {
    world.Violate("mix", label + " in the gate at version " +
                             (version ? std::to_string(*version) : "?") + ": " + what);
  };
  if (version && !expected) violate("no such version was ever published");
  if (world.Fault(world.rates().slow_reader)) world.Sleep(kSlowStep);
  for (std::size_t t = 0; expected && t < site.plan.tensors().size(); ++t) {
    const std::uint64_t size = site.plan.tensors()[t].size;
    const std::byte* const live = segment.view().Tensor(t);
    if (size != 0 && std::memcmp(live, expected->model.view().Tensor(t), size) != 0) {
      violate("tensor " + std::to_string(t) + " has other bytes");
    }
    if (t % 2 == 0) world.Point("reads");
  }
  // The number may move while the bytes stand still: an update of nothing.
  const auto after = reported();
  std::string what;
  if (after && after != version && !site.oracle.Agrees(*after, ReadOnly(segment.view()), what)) {
    violate("reported as " + std::to_string(*after) + " when it left; " + what);
  }
  segment.Leave(slot);
}

void ReadPairOnce(Site& site, SimSegment& first, unsigned first_slot, SimSegment& second,
                  unsigned second_slot, const std::string& label) {
  World& world = site.world;
  if (!EnterBoth(world, first, first_slot, second, second_slot)) return;
  if (world.Fault(world.rates().slow_reader)) world.Sleep(kSlowStep);
  for (std::size_t t = 0; t < site.plan.tensors().size(); ++t) {
    const std::uint64_t size = site.plan.tensors()[t].size;
    if (size != 0 && std::memcmp(first.view().Tensor(t), second.view().Tensor(t), size) != 0) {
      world.Violate("pair", label + ": tensor " + std::to_string(t) +
                                " is of another version in '" + second.name() + "' than in '" +
                                first.name() + "'");
    }
    if (t % 2 == 0) world.Point("reads both");
  }
  second.Leave(second_slot);
  first.Leave(first_slot);
}

void RunPairEngine(Site& site, Process& process, const std::string& first_name,
                   const std::string& second_name) {
  World& world = site.world;
  if (world.Sabotaged(Sabotage::kLateRot)) return;
  const auto both = [&] {
    return site.memory.Find(first_name) != nullptr && site.memory.Find(second_name) != nullptr;
  };
  for (;;) {
    (void)world.Await(both);
    SimSegment& first = *site.memory.Find(first_name);
    SimSegment& second = *site.memory.Find(second_name);
    const Slot first_slot(first, process);
    const Slot second_slot(second, process);
    while (!first.removed && !second.removed) {
      ReadPairOnce(site, first, first_slot.number(), second, second_slot.number(), process.name());
      world.Sleep(world.UpTo(kBetweenSteps));
    }
  }
}

void RunEngine(Site& site, Process& process, const std::string& name) {
  World& world = site.world;
  if (world.Sabotaged(Sabotage::kLateRot)) return;
  for (;;) {
    (void)world.Await([&] { return site.memory.Find(name) != nullptr; });
    SimSegment& segment = *site.memory.Find(name);
    const Slot slot(segment, process);
    while (!segment.removed) {
      ReadOnce(
          site, segment, slot.number(), [&] { return VersionInRecord(segment); }, process.name());
      world.Sleep(world.UpTo(kBetweenSteps));
    }
  }
}

}  // namespace segue::sim
