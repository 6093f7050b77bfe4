// SPDX-License-Identifier: Apache-2.0
//
// MappedChunk on this machine's memory.
#include "device/host/mapped_chunk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/digest.h"
#include "codec/sparse.h"
#include "device/host/kernels.h"

namespace segue {
namespace {

// Runs whose steps are taken together: neighbours in the tensor often lie side by side in the
// buffer (a transpose), and a cache line then serves all of them.
constexpr std::size_t kRunsTogether = 8;
constexpr std::uint64_t kStepsTogether = 32;

// Calls copy(place in the chunk, place in the buffer) for the elements of runs that step through
// the buffer.
template <typename Copy>
class RunInterleaver {
 public:
  RunInterleaver(unsigned width, std::uint64_t stride, Copy& copy)
      : width_(width), stride_(stride), copy_(copy) {}
  ~RunInterleaver() { Flush(); }

  void Add(std::uint64_t place, std::uint64_t target, std::uint64_t count) {
    if (run_count_ == kRunsTogether) Flush();
    runs_[run_count_++] = {place, target, count};
    longest_ = std::max(longest_, count);
  }

 private:
  struct Run {
    std::uint64_t place, target, count;
  };
  void Flush() {
    switch (width_) {
      case 1: Walk<1>(); break;
      case 2: Walk<2>(); break;
      case 4: Walk<4>(); break;
      default: Walk<8>(); break;
    }
    run_count_ = 0;
    longest_ = 0;
  }
  // With the width known, a copy is one load and one store.
  template <std::uint64_t kWidth>
  void Walk() {
    for (std::uint64_t begin = 0; begin < longest_; begin += kStepsTogether) {
      for (std::size_t k = 0; k < run_count_; ++k) {
        const std::uint64_t end = std::min(runs_[k].count, begin + kStepsTogether);
        for (std::uint64_t i = begin; i < end; ++i) {
          copy_(runs_[k].place + i * kWidth, runs_[k].target + i * stride_, kWidth);
        }
      }
    }
  }

  const unsigned width_;
  const std::uint64_t stride_;
  Copy& copy_;
  std::array<Run, kRunsTogether> runs_;
  std::size_t run_count_ = 0;
  std::uint64_t longest_ = 0;
};

// Calls copy(place in the chunk, place in the buffer, size) for pieces of bytes that lie alike in
// both.
template <typename Copy>
void ForEachPiece(const ViewMap& view, std::uint64_t first_element, std::uint64_t size, Copy copy) {
  const unsigned width = view.width();
  const bool dense = view.run_stride() == width;
  RunInterleaver steps(width, view.run_stride(), copy);
  view.ForEachRun(first_element, first_element + size / width,
                  [&](std::uint64_t element, std::uint64_t target, std::uint64_t count) {
                    const std::uint64_t place = (element - first_element) * width;
                    if (dense) return copy(place, target, count * width);
                    steps.Add(place, target, count);
                  });
}

std::uint64_t MaskOf(const host::SparseChunk& chunk, std::size_t change) {
  std::uint64_t mask = 0;
  for (unsigned p = 0; p < chunk.width; ++p) {
    const std::uint64_t byte = chunk.plane[p] != nullptr
                                   ? std::to_integer<std::uint64_t>(chunk.plane[p][change])
                                   : chunk.constants >> (8 * p) & 0xff;
    mask |= byte << (8 * p);
  }
  return mask;
}

// Changes whose places are found, and asked for, before the first of them is used.
constexpr std::size_t kBatch = 128;
constexpr std::uint64_t kNotHeld = ~std::uint64_t{0};

template <bool kWrite>
void LocateBatch(const ChunkWork& work, std::span<const std::uint32_t> positions,
                 std::uint64_t* targets) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto target = work.view->Locate(work.first_element + positions[i]);
    targets[i] = target.value_or(kNotHeld);
    if (target) __builtin_prefetch(work.live + *target, kWrite ? 1 : 0);
  }
}

// Whether the preflight has to read the whole part.
bool IsScanned(const ChunkWork& work) {
  return work.encoding != DeviceEncoding::kSparse || work.touched == 0;
}

Digest DigestOf(const ChunkWork& work, const ByteVector& chunk) {
  return host::ActiveKernels().digest(work.key, chunk.data(), work.size);
}

}  // namespace

void GatherPart(const ViewMap& view, const std::byte* live, std::uint64_t first_element,
                std::uint64_t size, std::byte* chunk) {
  std::memset(chunk, 0, size);
  ForEachPiece(view, first_element, size,
               [&](std::uint64_t place, std::uint64_t target, std::uint64_t piece) {
                 std::memcpy(chunk + place, live + target, piece);
               });
}

void ScatterPart(const ViewMap& view, std::byte* live, std::uint64_t first_element,
                 std::uint64_t size, const std::byte* chunk) {
  ForEachPiece(view, first_element, size,
               [&](std::uint64_t place, std::uint64_t target, std::uint64_t piece) {
                 std::memcpy(live + target, chunk + place, piece);
               });
}

void MappedChunk::Reserve(std::uint64_t chunk_size_max) {
  positions_.resize(std::max<std::size_t>(positions_.size(), chunk_size_max));
  for (ByteVector* buffer : {&live_, &mask_, &covered_}) {
    buffer->resize(std::max<std::size_t>(buffer->size(), chunk_size_max));
  }
}

template <bool kWrite>
Status MappedChunk::WalkSparse(const ChunkWork& work, PartSums& sums) {
  const host::SparseChunk& sparse = work.sparse;
  const SparseShape shape = {sparse.change_count, sparse.element_count, sparse.low_bits};
  const auto positions = std::span(positions_).first(shape.change_count);
  SEGUE_RETURN_IF_ERROR(DecodePositions(shape, ByteSpan(sparse.low, shape.LowSize()),
                                        ByteSpan(sparse.high, shape.HighSize()), positions));
  ElementDigester digest(work.key.tensor);
  std::uint64_t targets[kBatch];
  for (std::size_t begin = 0; begin < positions.size(); begin += kBatch) {
    const auto batch = positions.subspan(begin, std::min(kBatch, positions.size() - begin));
    LocateBatch<kWrite>(work, batch, targets);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint64_t mask = MaskOf(sparse, begin + i);
      if (mask == 0) return Corruption("positions or masks are not valid");
      if (targets[i] == kNotHeld) continue;
      const std::uint64_t offset = (work.first_element + batch[i]) * work.width;
      std::uint64_t value = 0;
      std::memcpy(&value, work.live + targets[i], work.width);
      const Digest before = digest(offset, value, work.width);
      value ^= mask;
      if constexpr (kWrite) std::memcpy(work.live + targets[i], &value, work.width);
      sums.difference += digest(offset, value, work.width) - before;
      sums.touched += before.lane[0];
    }
  }
  return {};
}

Status MappedChunk::DecodePart(const ChunkWork& work, MaskDecoder& decoder) {
  const std::byte* source = work.dense.data();
  if (work.encoding != DeviceEncoding::kRaw) {
    SEGUE_RETURN_IF_ERROR(decoder.Decode(work, mask_.data()));
    source = mask_.data();
  }
  std::memset(covered_.data(), 0, work.size);
  ForEachPiece(*work.view, work.first_element, work.size,
               [&](std::uint64_t place, std::uint64_t, std::uint64_t piece) {
                 std::memcpy(covered_.data() + place, source + place, piece);
               });
  return {};
}

Status MappedChunk::Preflight(const ChunkWork& work, MaskDecoder& decoder) {
  SEGUE_DCHECK(live_.size() >= work.size);
  PartSums& sums = *work.part;
  sums = {};
  if (IsScanned(work)) {
    GatherPart(*work.view, work.live, work.first_element, work.size, live_.data());
    sums.before = DigestOf(work, live_);
  }
  if (work.encoding == DeviceEncoding::kSparse) return WalkSparse<false>(work, sums);
  SEGUE_RETURN_IF_ERROR(DecodePart(work, decoder));
  if (work.encoding == DeviceEncoding::kRaw) {
    sums.difference = DigestOf(work, covered_) - sums.before;
  } else {
    const host::DenseSums found =
        host::ActiveKernels().xor_preflight(work.key, live_.data(), covered_.data(), work.size);
    sums.difference = found.after - found.before;
  }
  return {};
}

Status MappedChunk::Apply(const ChunkWork& work, MaskDecoder& decoder) {
  SEGUE_DCHECK(live_.size() >= work.size);
  const PartSums& expected = *work.part;
  PartSums sums;
  if (work.encoding == DeviceEncoding::kSparse) {
    SEGUE_RETURN_IF_ERROR(WalkSparse<true>(work, sums));
    if (sums.difference == expected.difference && sums.touched == expected.touched) return {};
    return Corruption("the live bytes are no longer those of the preflight");
  }
  SEGUE_RETURN_IF_ERROR(DecodePart(work, decoder));
  Digest after;
  if (work.encoding == DeviceEncoding::kRaw) {
    after = DigestOf(work, covered_);
    ScatterPart(*work.view, work.live, work.first_element, work.size, covered_.data());
  } else {
    GatherPart(*work.view, work.live, work.first_element, work.size, live_.data());
    after = host::ActiveKernels().xor_apply(work.key, live_.data(), covered_.data(), work.size);
    ScatterPart(*work.view, work.live, work.first_element, work.size, live_.data());
  }
  if (after == expected.before + expected.difference) return {};
  return Corruption("the live bytes are no longer those of the preflight");
}

}  // namespace segue
