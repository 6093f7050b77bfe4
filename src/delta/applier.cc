// SPDX-License-Identifier: Apache-2.0
//
// Applier: rows to device work, device verdicts to sentences, parts to sums.
#include "delta/applier.h"

#include <string>

#include "delta/tied.h"

namespace segue {
namespace {

// Whether a preflight reads the whole of the row's chunk.
bool IsScanned(const ChunkRow& row) {
  return row.encoding != Encoding::kSparse || row.touched == 0;
}

}  // namespace

std::string DescribeChunk(const Plan& plan, std::uint64_t chunk) {
  const ChunkPlace place = plan.Chunk(chunk);
  const PlanTensor& tensor = plan.tensors()[place.tensor];
  return "tensor '" + tensor.spec.name + "' chunk " + std::to_string(chunk - tensor.first_chunk);
}

Applier::Applier(const Plan& plan, const StagedDelta& staged, std::unique_ptr<const LiveMap> owned,
                 const LiveMap* live, Device& device)
    : plan_(plan),
      staged_(staged),
      owned_(std::move(owned)),
      live_(live != nullptr ? *live : *owned_),
      device_(device) {
  work_.reserve(staged.rows().size());
  origins_.reserve(staged.rows().size());
  AddWork(/*tied=*/false);
  apply_count_ = work_.size();
  AddWork(/*tied=*/true);
  std::size_t views = 0;
  for (const ChunkWork& work : work_) views += work.view != nullptr;
  parts_.resize(views);
  for (ChunkWork& work : work_) {
    if (work.view != nullptr) work.part = &parts_[--views];
  }
  device.Reserve(plan.chunk_size());
  if (live_.has_views()) device.ReserveForViews(plan.chunk_size());
}

void Applier::AddWork(bool tied) {
  for (std::size_t row = 0; row < staged_.rows().size(); ++row) {
    const ChunkPlace place = plan_.Chunk(staged_.rows()[row].chunk);
    for (const LiveMap::Part& part : live_.PartsOf(place.tensor)) {
      if ((part.tied_to != nullptr) == tied) AddPart(row, part);
    }
  }
}

void Applier::AddPart(std::size_t row, const LiveMap::Part& part) {
  const ChunkPlace place = plan_.Chunk(staged_.rows()[row].chunk);
  std::byte* const live = part.Contiguous(place);
  if (live == nullptr && part.SizeIn(place) == 0) return;
  ChunkWork work = staged_.Work(plan_, row, live != nullptr ? live : part.data);
  if (live == nullptr) {
    work.view = part.map.get();
    work.first_element = place.offset / place.width;
  }
  work_.push_back(work);
  origins_.push_back({row, &part});
}

Status Applier::Describe(const ChunkFault& fault) const {
  if (fault.verdict == ChunkVerdict::kDeviceFailed) return fault.detail;
  const ChunkRow& row = staged_.rows()[origins_[fault.index].row];
  std::string where = DescribeChunk(plan_, row.chunk);
  if (fault.verdict == ChunkVerdict::kBaseDiffers) {
    return VersionMismatch(where + ": the weights differ from the base version, expected digest " +
                           row.before.ToHex());
  }
  std::string reason = where + ": the payload does not lead to the target that it states";
  if (!fault.detail.ok()) reason += " (" + fault.detail.message() + ")";
  return Corruption(std::move(reason));
}

// Base and payload are proven by then: neither is to be blamed.
Status Applier::DescribeApplied(const ChunkFault& fault) const {
  if (fault.verdict == ChunkVerdict::kDeviceFailed) return fault.detail;
  std::string reason = DescribeChunk(plan_, staged_.rows()[origins_[fault.index].row].chunk) +
                       ": the apply did not come to what was proven before it: the device or its "
                       "memory failed, or somebody else wrote to the weights";
  if (!fault.detail.ok()) reason += " (" + fault.detail.message() + ")";
  return Internal(std::move(reason));
}

Status Applier::PreflightOn(Device& device) {
  SEGUE_RETURN_IF_ERROR(CheckTied(plan_, staged_, live_));
  SEGUE_RETURN_IF_ERROR(device.Load(work_));
  if (&device != &device_) SEGUE_RETURN_IF_ERROR(device_.Load(work_));
  if (const auto fault = device.Preflight(work_)) return Describe(*fault);
  return AddUp();
}

// What a piece of work adds: what its row states where the chunk is whole and was proven.
PartValues Applier::ValuesOf(std::size_t index) const {
  const ChunkWork& work = work_[index];
  if (work.view == nullptr) return ValuesOfRow(origins_[index].row);
  return {work.part->before, work.part->difference,
          IsScanned(staged_.rows()[origins_[index].row]) ? 0 : work.part->touched};
}

PartValues Applier::ValuesOfRow(std::size_t index) const {
  const ChunkRow& row = staged_.rows()[index];
  PartValues values;
  values.second = row.after - row.before;
  if (IsScanned(row)) {
    values.first = row.before;
  } else {
    values.number = row.touched;
  }
  return values;
}

// Sums over all parts, and the proof of each row that is here whole but in several parts.
Status Applier::AddUp() {
  sums_ = {};
  difference_ = {};
  std::vector<PartValues> rows(parts_.empty() ? 0 : staged_.rows().size());
  std::vector<bool> in_parts(rows.size());
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const auto& [row, part] = origins_[i];
    const PartValues values = ValuesOf(i);
    sums_.Add(part->copy, part->copy_count, values);
    difference_ += values.second;
    if (rows.empty() || part->copy != 0) continue;
    in_parts[row] = in_parts[row] || work_[i].view != nullptr;
    rows[row].first += values.first;
    rows[row].second += values.second;
    rows[row].number += values.number;
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (in_parts[row]) SEGUE_RETURN_IF_ERROR(CheckRow(row, rows[row]));
  }
  return {};
}

Status Applier::CheckRow(std::size_t index, const PartValues& found) const {
  const ChunkRow& row = staged_.rows()[index];
  if (!live_.HoldsAll(plan_.Chunk(row.chunk).tensor)) return {};
  const PartValues expected = ValuesOfRow(index);
  if (found == expected) return {};
  // A wrong base moves its own sum, and mostly the difference too; a payload that lies only that.
  const bool base = found.first == expected.first && found.number == expected.number;
  std::string where = DescribeChunk(plan_, row.chunk);
  if (!base) {
    return VersionMismatch(where + ": the weights differ from the base version under their views");
  }
  return Corruption(where + ": the payload does not lead to the target that it states");
}

Status Applier::CheckSums(const RankSums& sums) const {
  PartValues expected;
  for (std::size_t row = 0; row < staged_.rows().size(); ++row) {
    const PartValues values = ValuesOfRow(row);
    expected.first += values.first;
    expected.second += values.second;
    expected.number += values.number;
  }
  if (sums.copies != PartValues()) {
    return VersionMismatch("copies of a tensor differ between the ranks that hold it");
  }
  if (sums.counted == expected) return {};
  return VersionMismatch(
      "the parts that the ranks hold do not add up to the base version: some weights are wrong, "
      "missing, or held twice");
}

Status Applier::Apply() {
  const auto fault = device_.Apply(std::span(work_).first(apply_count_));
  return fault ? Tainted(DescribeApplied(*fault).message()) : Status();
}

}  // namespace segue
