// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the CUDA device give to it: chunks of one tensor in every encoding, with what
// they start from and lead to; and one update with them.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "codec/block_codec.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/owners.h"
#include "device/device.h"
#include "device/testing.h"

namespace segue::cuda {

inline constexpr std::uint64_t kChunkSize = 8192;
inline constexpr unsigned kWidth = 2;
inline constexpr std::uint64_t kTensor = 4;

// Chunks of one tensor, each in another encoding, over and over.
class Batch {
 public:
  explicit Batch(std::size_t count) : base(count * kChunkSize), target(base.size()) {
    Random random(1);
    base = host::RandomBytes(random, base.size());
    target = base;
    for (std::size_t i = 0; i < count; ++i) Add(random, i);
  }

  // The work on live bytes that begin at `live`.
  std::vector<ChunkWork> At(std::byte* live) const {
    std::vector<ChunkWork> placed = work;
    for (std::size_t i = 0; i < placed.size(); ++i) placed[i].live = live + i * kChunkSize;
    return placed;
  }

  ByteVector base;
  ByteVector target;
  std::vector<ChunkWork> work;

 private:
  void Add(Random& random, std::size_t i) {
    constexpr DeviceEncoding kEncodings[] = {DeviceEncoding::kSparse, DeviceEncoding::kPlanes,
                                             DeviceEncoding::kSnappy, DeviceEncoding::kSparse,
                                             DeviceEncoding::kLz4,    DeviceEncoding::kZstd,
                                             DeviceEncoding::kRaw};
    const std::size_t offset = i * kChunkSize;
    rows_.push_back(host::RandomRow(random, kChunkSize / kWidth, kWidth, 0.02, i % 2));
    const host::Row& row = rows_.back();
    ByteVector mask(kChunkSize);
    for (std::size_t k = 0; k < row.positions.size(); ++k) {
      std::copy_n(&row.values[k * kWidth], kWidth, &mask[std::size_t{row.positions[k]} * kWidth]);
    }
    for (std::size_t k = 0; k < kChunkSize; ++k) target[offset + k] ^= mask[k];
    ChunkWork chunk;
    chunk.encoding = kEncodings[i % std::size(kEncodings)];
    chunk.width = kWidth;
    chunk.key = {kTensor, offset / kDigestBlockSize};
    chunk.size = kChunkSize;
    chunk.first_element = offset / kWidth;
    chunk.before = Whole(base, offset);
    chunk.after = Whole(target, offset);
    if (chunk.encoding == DeviceEncoding::kSparse) {
      chunk.sparse = row.chunk;
      // One of two states what it touches.
      ByteVector live(base.begin() + static_cast<std::ptrdiff_t>(offset),
                      base.begin() + static_cast<std::ptrdiff_t>(offset + kChunkSize));
      const auto sums =
          host::ActiveKernels().sparse_preflight(chunk.key, chunk.sparse, live.data());
      chunk.touched = i % 4 == 0 ? 0 : sums.touched;
    } else {
      Encode(chunk, mask, ByteSpan(target).subspan(offset, kChunkSize));
    }
    work.push_back(chunk);
  }

  static Digest Whole(ByteSpan bytes, std::size_t offset) {
    return DigestBytes(kTensor, offset, bytes.subspan(offset, kChunkSize));
  }

  void Encode(ChunkWork& chunk, ByteSpan mask, ByteSpan replacement) {
    ByteVector data(2 * kChunkSize);
    switch (chunk.encoding) {
      case DeviceEncoding::kSnappy: data.resize(SnappyCompress(mask, data)); break;
      case DeviceEncoding::kLz4: data.resize(Lz4Compress(mask, data)); break;
      case DeviceEncoding::kZstd: data.resize(ZstdCompressor().Compress(mask, data).value()); break;
      case DeviceEncoding::kRaw: data.assign(replacement.begin(), replacement.end()); break;
      default: {
        data.resize(kChunkSize);
        std::byte* planes[] = {data.data(), data.data() + kChunkSize / kWidth};
        host::ActiveKernels().split_planes(mask.data(), kChunkSize / kWidth, kWidth, planes);
      }
    }
    data_.push_back(std::move(data));
    if (chunk.encoding == DeviceEncoding::kPlanes) {
      chunk.sparse.plane[0] = data_.back().data();
      chunk.sparse.plane[1] = data_.back().data() + kChunkSize / kWidth;
    } else {
      chunk.dense = data_.back();
    }
  }

  std::deque<host::Row> rows_;
  std::deque<ByteVector> data_;
};

// A device of its own takes `work` once. `applying`: whether the apply had begun when it failed.
inline Status UpdateOnce(const DriverPointer& driver, std::span<const ChunkWork> work,
                         bool& applying, const CudaDeviceOptions& options = {.threads = 1}) {
  std::shared_ptr<Accelerator> device;
  SEGUE_ASSIGN_OR_RETURN(device, MakeCudaDevice(driver, options));
  device->Reserve(kChunkSize);
  SEGUE_RETURN_IF_ERROR(device->Load(work));
  if (const auto fault = device->Preflight(work)) return fault->detail;
  applying = true;
  if (const auto fault = device->Apply(work)) return fault->detail;
  return {};
}

// Room for what is found of each chunk, which `work` then refers to; a move keeps it in its place.
inline std::vector<PartSums> PartsOf(std::vector<ChunkWork>& work) {
  std::vector<PartSums> parts(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) work[i].part = &parts[i];
  return parts;
}

}  // namespace segue::cuda
