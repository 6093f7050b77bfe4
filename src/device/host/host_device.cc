// SPDX-License-Identifier: Apache-2.0
//
// Host device: live weights in this machine's memory. Chunks are cut among threads in runs, so that
// a thread walks memory in order; each chunk is proven as it is read or written.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/worker_pool.h"
#include "codec/block_codec.h"
#include "device/device.h"
#include "device/host/mapped_chunk.h"

namespace segue {

struct MaskDecoder::State {
  ZstdDecompressor zstd;
};

MaskDecoder::MaskDecoder() : state_(std::make_unique<State>()) {}
MaskDecoder::~MaskDecoder() = default;

Status MaskDecoder::Decode(const ChunkWork& work, std::byte* mask) {
  const MutableByteSpan target(mask, work.size);
  switch (work.encoding) {
    case DeviceEncoding::kPlanes: {
      const std::byte* planes[8] = {};
      static_assert(sizeof(planes) == sizeof(work.sparse.plane));
      std::memcpy(planes, work.sparse.plane, sizeof(planes));
      host::ActiveKernels().join_planes(planes, work.size / work.width, work.width,
                                        work.sparse.constants, mask);
      return {};
    }
    case DeviceEncoding::kSnappy: return SnappyDecompress(work.dense, target);
    case DeviceEncoding::kLz4: return Lz4Decompress(work.dense, target);
    case DeviceEncoding::kZstd:
      return state_->zstd.Decompress(work.dense, target, ZstdChecksum::kOptional);
    case DeviceEncoding::kSparse:
    case DeviceEncoding::kRaw: break;
  }
  return Internal("encoding without a dense mask");
}

namespace {

// Chunks that a thread takes at a time.
constexpr std::size_t kRunLength = 8;

class HostDevice final : public Device {
 public:
  explicit HostDevice(unsigned threads) : pool_(threads), lanes_(pool_.size()) {}

  void Reserve(std::uint64_t chunk_size_max) override {
    for (Lane& lane : lanes_) lane.mask.resize(std::max(lane.mask.size(), chunk_size_max));
  }

  void ReserveForViews(std::uint64_t chunk_size_max) override {
    for (Lane& lane : lanes_) lane.mapped.Reserve(chunk_size_max);
  }

  std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) override {
    return Run(batch, [](const ChunkWork& work, Lane& lane) { return PreflightChunk(work, lane); });
  }

  std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) override {
    return Run(batch, [](const ChunkWork& work, Lane& lane) { return ApplyChunk(work, lane); });
  }

 private:
  // What one thread needs.
  struct Lane {
    std::vector<std::byte> mask;
    MaskDecoder decoder;
    MappedChunk mapped;
  };
  using Fault = std::optional<ChunkFault>;

  static Fault Base() { return ChunkFault{0, ChunkVerdict::kBaseDiffers, {}}; }
  static Fault Payload(Status detail = {}) {
    return ChunkFault{0, ChunkVerdict::kPayloadDiffers, std::move(detail)};
  }

  template <typename Job>
  Fault Run(std::span<const ChunkWork> batch, Job job) {
    Fault first;
    std::mutex mutex;
    const std::size_t runs = DivideUp(batch.size(), kRunLength);
    const Status status = ParallelFor(runs, pool_, [&](std::size_t run, unsigned thread) -> Status {
      const std::size_t end = std::min(batch.size(), (run + 1) * kRunLength);
      for (std::size_t i = run * kRunLength; i < end; ++i) {
        SEGUE_DCHECK(lanes_[thread].mask.size() >= batch[i].size);
        Fault fault = job(batch[i], lanes_[thread]);
        if (!fault) continue;
        fault->index = i;
        const std::lock_guard lock(mutex);
        if (!first || i < first->index) first = std::move(fault);
        return Internal("chunk fault");
      }
      return {};
    });
    SEGUE_CHECK(status.ok() != first.has_value());
    return first;
  }

  static Fault PreflightSparse(const ChunkWork& work) {
    const host::Kernels& kernels = host::ActiveKernels();
    const host::SparseSums sums = kernels.sparse_preflight(work.key, work.sparse, work.live);
    if (!sums.valid) return Payload(Corruption("positions or masks are not valid"));
    if (work.touched == 0 || sums.touched != work.touched) {
      // The whole chunk decides, also on whose fault it is that `touched` does not agree.
      if (kernels.digest(work.key, work.live, work.size) != work.before) return Base();
      if (work.touched != 0)
        return Payload(Corruption("other elements are touched than it states"));
    }
    return sums.difference == work.after - work.before ? Fault() : Payload();
  }

  static Fault PreflightChunk(const ChunkWork& work, Lane& lane) {
    if (work.view != nullptr) {
      Status status = lane.mapped.Preflight(work, lane.decoder);
      return status.ok() ? Fault() : Payload(std::move(status));
    }
    if (work.encoding == DeviceEncoding::kSparse) return PreflightSparse(work);
    const host::Kernels& kernels = host::ActiveKernels();
    if (work.encoding == DeviceEncoding::kRaw) {
      if (kernels.digest(work.key, work.live, work.size) != work.before) return Base();
      const Digest after = kernels.digest(work.key, work.dense.data(), work.size);
      return after == work.after ? Fault() : Payload();
    }
    Status decoded = lane.decoder.Decode(work, lane.mask.data());
    if (!decoded.ok()) return Payload(std::move(decoded));
    const auto sums = kernels.xor_preflight(work.key, work.live, lane.mask.data(), work.size);
    if (sums.before != work.before) return Base();
    return sums.after == work.after ? Fault() : Payload();
  }

  static Fault ApplyChunk(const ChunkWork& work, Lane& lane) {
    if (work.view != nullptr) {
      Status status = lane.mapped.Apply(work, lane.decoder);
      return status.ok() ? Fault() : Payload(std::move(status));
    }
    const host::Kernels& kernels = host::ActiveKernels();
    Digest after;
    if (work.encoding == DeviceEncoding::kSparse) {
      after = work.before + kernels.sparse_apply(work.key, work.sparse, work.live).difference;
    } else if (work.encoding == DeviceEncoding::kRaw) {
      std::memcpy(work.live, work.dense.data(), work.size);
      after = kernels.digest(work.key, work.live, work.size);
    } else {
      Status decoded = lane.decoder.Decode(work, lane.mask.data());
      if (!decoded.ok()) return Payload(std::move(decoded));
      after = kernels.xor_apply(work.key, work.live, lane.mask.data(), work.size);
    }
    return after == work.after ? Fault() : Payload();
  }

  WorkerPool pool_;
  std::vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(unsigned threads) {
  return std::make_unique<HostDevice>(threads);
}

}  // namespace segue
