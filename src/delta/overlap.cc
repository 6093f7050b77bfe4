// SPDX-License-Identifier: Apache-2.0
//
// Overlap: parts sorted by address fall into clusters that reach into one another; inside a cluster
// of more than one a bitmap of its bytes decides.
#include "delta/overlap.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

namespace segue {
namespace {

using Part = LiveMap::Part;

// A part and the bytes that it reaches over.
template <typename P>
struct ReachOver {
  P* part = nullptr;
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool second = false;  // Of two maps, whose it is.
};
using Reach = ReachOver<Part>;
using FixedReach = ReachOver<const Part>;

bool AddressLess(const std::byte* a, const std::byte* b) {
  return std::less<const std::byte*>()(a, b);
}

template <typename P>
ReachOver<P> ReachOf(const Plan& plan, P& part) {
  const std::uint64_t offset = part.map ? part.map->target_offset() : 0;
  const std::uint64_t size = part.map ? part.map->target_reach() : plan.tensors()[part.tensor].size;
  return {&part, part.data + offset, part.data + offset + size};
}

template <typename P>
bool BeginsBefore(const ReachOver<P>& a, const ReachOver<P>& b) {
  return AddressLess(a.begin, b.begin);
}

// The end of the cluster that begins at `begin`: what comes there reaches into nothing before it.
template <typename P>
std::size_t EndOfCluster(const std::vector<ReachOver<P>>& reaches, std::size_t begin,
                         const std::byte*& end) {
  end = reaches[begin].end;
  std::size_t next = begin + 1;
  for (; next < reaches.size() && AddressLess(reaches[next].begin, end); ++next) {
    end = std::max(end, reaches[next].end, AddressLess);
  }
  return next;
}

// The same bytes, each for the element of the same place.
bool AreSame(const Plan& plan, const Part& a, const Part& b) {
  const PlanTensor& first = plan.tensors()[a.tensor];
  const PlanTensor& second = plan.tensors()[b.tensor];
  if (a.data != b.data || first.size != second.size) return false;
  if (DtypeWidth(first.spec.dtype) != DtypeWidth(second.spec.dtype)) return false;
  if (!a.map || !b.map) return !a.map && !b.map;
  return *a.map == *b.map;
}

Status Refuse(const Plan& plan, const Part& a, const Part& b) {
  return InvalidArgument("tensors '" + plan.tensors()[a.tensor].spec.name + "' and '" +
                         plan.tensors()[b.tensor].spec.name +
                         "' overlap in memory without being the same part");
}

// Which bytes of a cluster are taken.
class ByteMarks {
 public:
  explicit ByteMarks(std::uint64_t size) : words_(DivideUp(size, 64)) {}
  // False where one of them was taken already.
  bool Take(std::uint64_t begin, std::uint64_t size) {
    for (std::uint64_t byte = begin; byte < begin + size; ++byte) {
      const std::uint64_t bit = std::uint64_t{1} << (byte % 64);
      if ((words_[byte / 64] & bit) != 0) return false;
      words_[byte / 64] |= bit;
    }
    return true;
  }

 private:
  std::vector<std::uint64_t> words_;
};

bool TakeAll(const Plan& plan, const Part& part, const std::byte* cluster, ByteMarks& marks) {
  const auto base = static_cast<std::uint64_t>(part.data - cluster);
  const PlanTensor& tensor = plan.tensors()[part.tensor];
  if (!part.map) return marks.Take(base, tensor.size);
  const unsigned width = part.map->width();
  const std::uint64_t stride = part.map->run_stride();
  bool free = true;
  part.map->ForEachRun(0, tensor.size / width,
                       [&](std::uint64_t, std::uint64_t target, std::uint64_t count) {
                         if (stride == width) {
                           free = free && marks.Take(base + target, count * width);
                           return;
                         }
                         for (std::uint64_t i = 0; i < count; ++i) {
                           free = free && marks.Take(base + target + i * stride, width);
                         }
                       });
  return free;
}

Status CheckCluster(const Plan& plan, std::span<const Reach> cluster, const std::byte* end) {
  const std::byte* const begin = cluster.front().begin;
  // Base of `part.data - begin` may lie before the cluster; what a part takes never does.
  ByteMarks marks(static_cast<std::uint64_t>(end - begin));
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    Part& part = *cluster[i].part;
    for (std::size_t k = 0; k < i && part.tied_to == nullptr; ++k) {
      Part& other = *cluster[k].part;
      if (other.tied_to != nullptr || !AreSame(plan, part, other)) continue;
      if (other.tensor == part.tensor) return Refuse(plan, other, part);
      part.tied_to = &other;
    }
    if (part.tied_to != nullptr || TakeAll(plan, part, begin, marks)) continue;
    // Which of those before it: the nearest that reaches into it.
    std::size_t k = i - 1;
    while (k > 0 && !AddressLess(cluster[i].begin, cluster[k].end)) --k;
    return Refuse(plan, *cluster[k].part, part);
  }
  return {};
}

// Where one ends in the gaps of the other, a bitmap of what both reach over decides.
bool ShareBytes(const Plan& first_plan, const FixedReach& first, const Plan& second_plan,
                const FixedReach& second) {
  if (!AddressLess(first.begin, second.end) || !AddressLess(second.begin, first.end)) return false;
  if (!first.part->map && !second.part->map) return true;
  const std::byte* const begin = std::min(first.begin, second.begin, AddressLess);
  const std::byte* const end = std::max(first.end, second.end, AddressLess);
  ByteMarks marks(static_cast<std::uint64_t>(end - begin));
  return !TakeAll(first_plan, *first.part, begin, marks) ||
         !TakeAll(second_plan, *second.part, begin, marks);
}

void AddReaches(const Plan& plan, std::span<const Part> parts, bool second,
                std::vector<FixedReach>& reaches) {
  for (const Part& part : parts) {
    FixedReach reach = ReachOf(plan, part);
    reach.second = second;
    if (reach.begin != reach.end) reaches.push_back(reach);
  }
}

}  // namespace

Status FindOverlaps(const Plan& plan, std::vector<Part>& parts) {
  std::vector<Reach> reaches;
  reaches.reserve(parts.size());
  for (Part& part : parts) {
    const Reach reach = ReachOf(plan, part);
    if (reach.begin != reach.end) reaches.push_back(reach);
  }
  std::stable_sort(reaches.begin(), reaches.end(), BeginsBefore<Part>);
  for (std::size_t begin = 0, next = 0; begin < reaches.size(); begin = next) {
    const std::byte* end = nullptr;
    next = EndOfCluster(reaches, begin, end);
    if (next - begin == 1) continue;
    SEGUE_RETURN_IF_ERROR(CheckCluster(plan, std::span(reaches).subspan(begin, next - begin), end));
  }
  return {};
}

std::optional<SharedParts> FindShared(const Plan& first_plan, std::span<const Part> first,
                                      const Plan& second_plan, std::span<const Part> second) {
  std::vector<FixedReach> reaches;
  reaches.reserve(first.size() + second.size());
  AddReaches(first_plan, first, false, reaches);
  AddReaches(second_plan, second, true, reaches);
  std::stable_sort(reaches.begin(), reaches.end(), BeginsBefore<const Part>);
  for (std::size_t begin = 0, next = 0; begin < reaches.size(); begin = next) {
    const std::byte* end = nullptr;
    next = EndOfCluster(reaches, begin, end);
    for (std::size_t i = begin; i < next; ++i) {
      for (std::size_t k = begin; k < next; ++k) {
        if (reaches[i].second || !reaches[k].second) continue;
        if (!ShareBytes(first_plan, reaches[i], second_plan, reaches[k])) continue;
        return SharedParts{reaches[i].part, reaches[k].part};
      }
    }
  }
  return std::nullopt;
}

}  // namespace segue
