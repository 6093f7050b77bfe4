// SPDX-License-Identifier: Apache-2.0
//
// Segments of the simulation.
#include "sim/sim_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"

namespace segue::sim {
namespace {

constexpr unsigned kSlots = 4;
constexpr std::size_t kHeaderSize = kSlotsOffset + kSlots * kSlotSize;

// The words of the record in the order in which they are written, phase last.
struct WordPlace {
  std::uint64_t offset;
  std::uint64_t size;
};
constexpr std::array<WordPlace, 8> kRecordWords = {{{segment_field::kSequence, 8},
                                                    {segment_field::kVersion, 8},
                                                    {segment_field::kTargetVersion, 8},
                                                    {segment_field::kDigest, 8},
                                                    {segment_field::kDigest + 8, 8},
                                                    {segment_field::kAppliedCount, 8},
                                                    {segment_field::kSequence, 8},
                                                    {segment_field::kPhase, 4}}};

class SimWeights final : public LiveWeights {
 public:
  SimWeights(World& world, const Oracle& oracle, SimSegment& segment)
      : world_(world),
        oracle_(oracle),
        segment_(segment),
        gate_(world, segment),
        plan_(segment.plan()),
        map_(LiveMap::Whole(segment.plan(), segment.view())) {
    segment_.held = true;
    if (phase() == Phase::kApplying || phase() == Phase::kDue) {
      before_resolve_.emplace(segment_.Copy());
    }
    segment_.words().EndRecord();
  }
  ~SimWeights() override { segment_.held = false; }

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  const LiveMap& map() const override { return map_; }
  Gate& gate() override { return gate_; }
  Phase phase() const override { return static_cast<Phase>(segment_.words().phase().load()); }
  LiveVersion version() const override {
    const SegmentRecord record = segment_.words().Record();
    return {segment_.lineage(), record.version, record.target_version, record.digest,
            record.applied_count};
  }
  unsigned engine_count() const override { return 1; }

  std::vector<std::string> mates() const override { return segment_.words().Mates(); }
  void Announce(std::uint64_t target_version, const std::vector<std::string>& mates) override {
    if (!segment_.closed()) world_.Violate("gate", "an update is announced with the gate open");
    Write("announce version " + std::to_string(target_version),
          [&] { segment_.words().Announce(target_version, mates); });
  }
  void BeginApply(std::uint64_t target_version) override {
    if (!segment_.closed()) world_.Violate("gate", "an apply begins with the gate open");
    Write("begin apply of version " + std::to_string(target_version),
          [&] { segment_.words().BeginApply(target_version); });
  }

  void Commit(std::uint64_t version, const Digest& digest) override {
    std::string what;
    if (!oracle_.Agrees(version, ReadOnly(segment_.view()), what)) world_.Violate("bytes", what);
    if (before_resolve_ && world_.MustDie()) DieInsideResolve();
    before_resolve_.reset();
    const std::uint64_t stated =
        version +
        (world_.Sabotaged(Sabotage::kWrongVersion) && version > 1 && oracle_.Find(version - 1) ? -1
                                                                                               : 0);
    Write("commit version " + std::to_string(version),
          [&] { segment_.words().CommitVersion(stated, digest); });
  }

  void SetPhase(Phase phase) override {
    if (phase == Phase::kLoading && !segment_.closed()) {
      world_.Violate("gate", "weights are loaded with the gate open");
    }
    Write("phase " + std::to_string(static_cast<int>(phase)),
          [&] { segment_.words().SetPhase(phase); });
  }

 private:
  // As if the resolution had come only so far: chunks are as it left them, as it found them, or so
  // up to some element.
  void DieInsideResolve() {
    const ModelView before = before_resolve_->view();
    for (std::uint64_t chunk = 0; chunk < plan().chunk_count(); ++chunk) {
      const ChunkPlace place = plan().Chunk(chunk);
      std::uint64_t cut = world_.Below(3) * place.size;
      if (cut > place.size) cut = world_.Below(place.size / place.width + 1) * place.width;
      std::memcpy(segment_.view().Chunk(place) + cut, before.Chunk(place) + cut, place.size - cut);
    }
    world_.Die("inside the resolution");
  }

  // Real stores, all of them or the first few: then the process dies.
  void Write(const std::string& what, const std::function<void()>& stores) {
    world_.Point(what.c_str());
    std::array<std::byte, kSlotsOffset> before{};
    std::memcpy(before.data(), segment_.header(), before.size());
    stores();
    world_.Note(what);
    if (!world_.MustDie()) return;
    std::array<std::byte, kSlotsOffset> after{};
    std::memcpy(after.data(), segment_.header(), after.size());
    std::memcpy(segment_.header(), before.data(), before.size());
    const std::uint64_t count = world_.Below(kRecordWords.size() + 1);
    // The mates come before the record.
    const std::size_t mates = segment_field::kMatesSize;
    std::memcpy(segment_.header() + mates, after.data() + mates, 8 + kMatesSizeMax);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto [offset, size] = kRecordWords[i];
      std::memcpy(segment_.header() + offset, after.data() + offset, size);
    }
    const bool open_record = count >= 1 && count <= 6;
    if (open_record && after[segment_field::kSequence] != before[segment_field::kSequence]) {
      std::memcpy(segment_.header() + segment_field::kSequence,
                  before.data() + segment_field::kSequence, 8);
      segment_.header()[segment_field::kSequence] ^= std::byte{1};
    }
    world_.Die(("after " + std::to_string(count) + " words of it").c_str());
  }

  World& world_;
  const Oracle& oracle_;
  SimSegment& segment_;
  SimGate gate_;
  PlanSlot plan_;
  const LiveMap map_;
  std::optional<test::Model> before_resolve_;  // As the last receiver left the weights.
};

}  // namespace

SimSegment::SimSegment(std::string name, const Plan& plan, std::string lineage)
    : engines(kSlots, nullptr),
      name_(std::move(name)),
      plan_(plan),
      lineage_(std::move(lineage)),
      header_(kHeaderSize),
      model_(plan_, 99) {
  words().gate().store(kGateClosed);
  words().phase().store(static_cast<std::uint32_t>(Phase::kLoading));
}

MutableModelView SimSegment::view() { return model_.live(); }

bool SimSegment::Has(const std::byte* place) {
  for (std::size_t t = 0; t < plan_.tensors().size(); ++t) {
    const std::byte* const begin = view().Tensor(t);
    if (place >= begin && place < begin + plan_.tensors()[t].size) return true;
  }
  return false;
}

void SimSegment::Bury() {
  for (unsigned slot = 0; slot < engines.size(); ++slot) {
    if (engines[slot] == nullptr) words().inside(slot).store(0);
  }
}

bool SimSegment::empty() {
  for (unsigned slot = 0; slot < engines.size(); ++slot) {
    if (inside(slot) != 0) return false;
  }
  return true;
}

Result<std::unique_ptr<LiveWeights>> SimMemory::Open(const std::string& name) {
  world_.Point("open segment");
  SimSegment* const segment = Find(name);
  if (segment == nullptr) return NotFound("no segment '" + name + "'");
  if (segment->held) return Unavailable("segment '" + name + "' is held");
  const auto phase = static_cast<Phase>(segment->words().phase().load());
  if (phase == Phase::kApplying) ++interrupted_;
  if (phase == Phase::kPending || phase == Phase::kDue) ++announced_;
  return std::unique_ptr<LiveWeights>(std::make_unique<SimWeights>(world_, oracle_, *segment));
}

Result<std::unique_ptr<LiveWeights>> SimMemory::Create(const std::string& name, const Plan& plan,
                                                       const std::string& lineage) {
  world_.Point("create segment");
  if (Find(name) != nullptr) return Unavailable("segment '" + name + "' is there");
  auto made = std::make_unique<SimSegment>(name, plan, lineage);
  SimSegment& segment = *made;
  segments_.emplace(name, std::move(made));
  return std::unique_ptr<LiveWeights>(std::make_unique<SimWeights>(world_, oracle_, segment));
}

Status SimMemory::Remove(const std::string& name) {
  world_.Point("remove segment");
  const auto found = segments_.find(name);
  if (found == segments_.end()) return {};
  found->second->removed = true;
  removed_.push_back(std::move(found->second));
  segments_.erase(found);
  return {};
}

SimSegment* SimMemory::Find(const std::string& name) {
  const auto found = segments_.find(name);
  return found == segments_.end() ? nullptr : found->second.get();
}

Status SimGate::Close(std::chrono::milliseconds deadline) {
  world_.Point("close gate");
  if (world_.Sabotaged(Sabotage::kOpenGate)) {
    // Looks closed to the checkers of the receiver's steps, is open to engines.
    segment_.words().gate().store(2);
    return {};
  }
  segment_.applied.clear();
  if (world_.Sabotaged(Sabotage::kNoGate)) return {};
  const bool was_closed = segment_.closed();
  segment_.words().gate().store(kGateClosed);
  world_.Note("gate closing");
  const bool emptied = world_.Await(
      [this] {
        segment_.Bury();
        return segment_.empty();
      },
      world_.now() + deadline);
  if (emptied) {
    world_.Note("gate closed");
    return {};
  }
  if (!was_closed) segment_.words().gate().store(kGateOpen);
  world_.Note("gate did not close in time");
  return Unavailable("engines were still inside the gate");
}

Status SimGate::Open() {
  world_.Point("open gate");
  const bool rots = world_.Sabotaged(Sabotage::kRot) || world_.Sabotaged(Sabotage::kLateRot);
  if (rots && world_.Chance(0.1)) {
    segment_.view().Tensor(0)[world_.Below(64)] ^= std::byte{16};
  }
  segment_.words().gate().store(kGateOpen);
  world_.Note("gate open");
  return {};
}

}  // namespace segue::sim
