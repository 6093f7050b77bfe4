// SPDX-License-Identifier: Apache-2.0
//
// Lanes, warps and blocks.
#include "ptx/machine.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <string>

#include "base/random.h"

namespace ptx {
namespace {

constexpr std::uint32_t kNowhere = 0xffffffff;

unsigned FirstLane(std::uint32_t lanes) { return static_cast<unsigned>(std::countr_zero(lanes)); }

template <typename F>
void ForEach(std::uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(FirstLane(lanes));
}

unsigned RandomLane(std::uint32_t lanes, segue::Random& random) {
  for (auto skip = random.Below(static_cast<unsigned>(std::popcount(lanes))); skip > 0; --skip) {
    lanes &= lanes - 1;
  }
  return FirstLane(lanes);
}

class Warp {
 public:
  Warp(const Kernel& kernel, std::span<const std::uint64_t> arguments, Shared& shared,
       Counts& counts)
      : kernel_(kernel), counts_(counts) {
    registers_.file.resize(kernel.register_count);
    registers_.shared = &shared;
    for (const auto& [number, value] : kernel.constants) SetAll(number, value);
    for (std::size_t k = 0; k < arguments.size(); ++k) SetAll(kernel.parameters[k], arguments[k]);
  }

  void SetPlace(unsigned block, unsigned warp, unsigned threads) {
    SetSpecial("%ctaid.x", block, 0);
    SetSpecial("%ntid.x", threads, 0);
    SetSpecial("%tid.x", warp * kLaneCount, 1);
  }

  bool has_returned() const { return returned_ == kAllLanes; }
  // Whether all lanes that have not returned wait for those of other warps.
  bool is_at_barrier() const { return at_barrier_ != 0 && (at_barrier_ | returned_) == kAllLanes; }
  void LeaveBarrier() {
    for (unsigned lane = 0; lane < kLaneCount; ++lane) place_[lane] += at_barrier_ >> lane & 1;
    at_barrier_ = 0;
  }

  // Goes on until all lanes have returned or wait at the block's barrier.
  void Go(segue::Random* random) {
    while (true) {
      const std::uint32_t ready = ~(returned_ | at_barrier_ | waiting_);
      if (ready != 0) {
        RunSome(ready, random);
      } else if (waiting_ != 0) {
        Fail(place_[FirstLane(waiting_)], "lanes wait for others that do not come here");
      } else {
        return;
      }
    }
  }

 private:
  void SetAll(std::uint32_t number, std::uint64_t value) {
    registers_.file[number].value.fill(value);
    registers_.file[number].defined = kAllLanes;
  }

  void SetSpecial(const char* name, std::uint64_t first, std::uint64_t step) {
    const auto found = kernel_.special.find(name);
    if (found == kernel_.special.end()) return;
    Register& special = registers_.file[found->second];
    for (unsigned lane = 0; lane < kLaneCount; ++lane) special.value[lane] = first + lane * step;
    special.defined = kAllLanes;
  }

  [[noreturn]] void Fail(std::uint32_t place, const std::string& what) const {
    throw Fault(kernel_.name + ": '" + kernel_.code[place].text + "' (" + std::to_string(place) +
                "): " + what);
  }

  std::uint32_t LanesAt(std::uint32_t place, std::uint32_t among) const {
    std::uint32_t lanes = 0;
    ForEach(among, [&](unsigned lane) { lanes |= std::uint32_t{place_[lane] == place} << lane; });
    return lanes;
  }

  // Where lanes go on next: furthest behind, or anywhere.
  std::uint32_t Choose(std::uint32_t ready, segue::Random* random) const {
    if (random != nullptr) return place_[RandomLane(ready, *random)];
    std::uint32_t place = kNowhere;
    ForEach(ready, [&](unsigned lane) { place = std::min(place, place_[lane]); });
    return place;
  }

  // Lanes that stand at one place go on together: until they part, wait or return, come to where
  // others stand, or, at random, for a while; at random some of them stay behind.
  void RunSome(std::uint32_t ready, segue::Random* random) {
    std::uint32_t place = Choose(ready, random);
    std::uint32_t group = LanesAt(place, ready);
    std::uint64_t steps = ~std::uint64_t{0};
    if (random != nullptr) {
      steps = 1 + random->Below(64);
      const std::uint32_t some = group & static_cast<std::uint32_t>(random->Next());
      if (some != 0 && random->Below(4) == 0) group = some;
    }
    std::uint32_t others = kNowhere;  // The next place where lanes stand that could join.
    ForEach(ready & ~group, [&](unsigned lane) {
      if (place_[lane] > place) others = std::min(others, place_[lane]);
    });
    const bool is_alone = group == ready;
    bool is_together = true;
    while (is_together && steps-- > 0 && place != others) {
      const std::uint32_t before = place;
      is_together = Step(group, place);
      if (!is_alone && place != before + 1) break;
    }
    if (is_together) SetPlaces(group, place);
  }

  // One instruction of all lanes of `group`, which stand at `place`, and where they stand then.
  // False: they do not go on together, and each lane's place is set.
  bool Step(std::uint32_t group, std::uint32_t& place);

  void Plain(const Instruction& instruction, std::uint32_t place, std::uint32_t lanes);
  std::uint64_t SectorsOf(const Instruction& instruction, std::uint32_t lanes) const;
  std::uint32_t NamedBy(const Instruction& instruction, std::uint32_t lanes,
                        std::uint32_t place) const;
  bool Arrive(const Instruction& instruction, std::uint32_t lanes, std::uint32_t place);
  std::uint32_t LanesOf(const Instruction& instruction, std::uint32_t group,
                        std::uint32_t place) const;

  void SetPlaces(std::uint32_t lanes, std::uint32_t place) {
    ForEach(lanes, [&](unsigned lane) { place_[lane] = place; });
  }

  const Kernel& kernel_;
  Counts& counts_;
  Registers registers_;
  std::array<std::uint32_t, kLaneCount> place_ = {};
  std::uint32_t returned_ = 0;
  std::uint32_t at_barrier_ = 0;
  std::uint32_t waiting_ = 0;  // At a collective.
};

// Those for which the predicate holds.
std::uint32_t Warp::LanesOf(const Instruction& instruction, std::uint32_t group,
                            std::uint32_t place) const {
  if (!instruction.is_predicated) return group;
  const Register& predicate = registers_.file[instruction.predicate];
  if ((predicate.defined & group) != group) Fail(place, "the predicate was never written");
  std::uint32_t lanes = 0;
  ForEach(group, [&](unsigned lane) {
    const bool holds = (predicate.value[lane] & 1) != 0;
    lanes |= std::uint32_t{holds != instruction.is_negated} << lane;
  });
  return lanes;
}

std::uint64_t Warp::SectorsOf(const Instruction& instruction, std::uint32_t lanes) const {
  constexpr std::uint64_t kSectorSize = 32;
  const Register& address = registers_.file[instruction.from[0]];
  std::set<std::uint64_t> sectors;
  ForEach(lanes, [&](unsigned lane) {
    sectors.insert((address.value[lane] + static_cast<std::uint64_t>(instruction.offset)) /
                   kSectorSize);
  });
  return sectors.size();
}

void Warp::Plain(const Instruction& instruction, std::uint32_t place, std::uint32_t lanes) {
  const Operation& operation = *instruction.operation;
  std::uint32_t known = kAllLanes;
  for (const std::uint32_t number : instruction.from) known &= registers_.file[number].defined;
  if (operation.demands && (known & lanes) != lanes) Fail(place, "a value was never written");
  for (const std::uint32_t number : instruction.to) {
    std::uint32_t& defined = registers_.file[number].defined;
    defined = (defined & ~lanes) | (operation.demands ? lanes : known & lanes);
  }
  if (operation.is_memory) counts_.sectors += SectorsOf(instruction, lanes);
  try {
    operation.run(instruction, registers_, lanes);
  } catch (const Fault& fault) {
    Fail(place, fault.what());
  }
}

// Which lanes a collective names, all of its lanes the same.
std::uint32_t Warp::NamedBy(const Instruction& instruction, std::uint32_t lanes,
                            std::uint32_t place) const {
  const Register& mask = registers_.file[instruction.member_mask];
  if ((mask.defined & lanes) != lanes) Fail(place, "the mask was never written");
  const auto named = static_cast<std::uint32_t>(mask.value[FirstLane(lanes)]);
  ForEach(lanes, [&](unsigned lane) {
    if (static_cast<std::uint32_t>(mask.value[lane]) != named) Fail(place, "lanes name others");
  });
  return named;
}

// Lanes at a collective wait until all that its mask names have come. False: they do.
bool Warp::Arrive(const Instruction& instruction, std::uint32_t lanes, std::uint32_t place) {
  const std::uint32_t named = NamedBy(instruction, lanes, place);
  if ((named & returned_) != 0) Fail(place, "a lane that has returned is named");
  if ((named & lanes) != lanes) Fail(place, "a lane that is not named is here");
  SetPlaces(lanes, place);
  waiting_ |= lanes;
  if (LanesAt(place, waiting_) != named) return false;
  Plain(instruction, place, named);
  waiting_ &= ~named;
  SetPlaces(named, place + 1);
  return named == lanes;
}

bool Warp::Step(std::uint32_t group, std::uint32_t& place) {
  const Instruction& instruction = kernel_.code.at(place);
  const ptx::Step step = instruction.operation->step;
  ++counts_.instructions;
  const std::uint32_t lanes = LanesOf(instruction, group, place);
  const std::uint32_t others = group & ~lanes;
  if (step == ptx::Step::kPlain) {
    if (lanes != 0) Plain(instruction, place, lanes);
    ++place;
    return true;
  }
  if (lanes == 0 || (step == ptx::Step::kBranch && others == 0)) {
    place = lanes == 0 ? place + 1 : instruction.target;
    return true;
  }
  SetPlaces(others, place + 1);
  switch (step) {
    case ptx::Step::kBranch: SetPlaces(lanes, instruction.target); return false;
    case ptx::Step::kReturn: returned_ |= lanes; return false;
    case ptx::Step::kBarrier:
      if (at_barrier_ != 0 && place_[FirstLane(at_barrier_)] != place) {
        Fail(place, "lanes of this warp wait at another barrier");
      }
      SetPlaces(lanes, place);
      at_barrier_ |= lanes;
      return false;
    default: break;
  }
  if (!Arrive(instruction, lanes, place) || others != 0) return false;
  ++place;
  return true;
}

void RunBlock(std::vector<std::unique_ptr<Warp>>& warps, segue::Random* random) {
  while (true) {
    for (std::size_t k = 1; random != nullptr && k < warps.size(); ++k) {
      std::swap(warps[k], warps[random->Below(k + 1)]);
    }
    bool has_returned = true;
    for (const auto& warp : warps) {
      warp->Go(random);
      has_returned = has_returned && warp->has_returned();
    }
    if (has_returned) return;
    for (const auto& warp : warps) {
      if (!warp->has_returned() && !warp->is_at_barrier()) throw Fault("a barrier is not reached");
      warp->LeaveBarrier();
    }
  }
}

}  // namespace

Counts Run(const Kernel& kernel, std::span<const std::uint64_t> arguments, unsigned blocks,
           unsigned threads, const Order& order) {
  if (arguments.size() != kernel.parameters.size()) throw Fault("another number of arguments");
  if (threads % kLaneCount != 0) throw Fault("a warp that is not whole");
  if (kernel.threads_max != 0 && threads > kernel.threads_max) {
    throw Fault("blocks of " + std::to_string(threads) + " threads, compiled for " +
                std::to_string(kernel.threads_max));
  }
  segue::Random generator(order.seed);
  segue::Random* const random = order.seed == 0 ? nullptr : &generator;
  Counts counts;
  for (unsigned block = 0; block < blocks; ++block) {
    Shared shared = {std::vector<std::byte>(kernel.shared_size),
                     std::vector<std::uint8_t>(kernel.shared_size)};
    std::vector<std::unique_ptr<Warp>> warps;
    for (unsigned warp = 0; warp < threads / kLaneCount; ++warp) {
      warps.push_back(std::make_unique<Warp>(kernel, arguments, shared, counts));
      warps.back()->SetPlace(block, warp, threads);
    }
    RunBlock(warps, random);
  }
  return counts;
}

}  // namespace ptx
