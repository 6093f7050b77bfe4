// SPDX-License-Identifier: Apache-2.0
//
// ResolveLive: chunk by chunk, on all threads; every outcome is proven by the chunk's digest.
#include "live/resolve_live.h"

#include <cstring>
#include <mutex>

#include "base/digest.h"
#include "base/threads.h"
#include "delta/applier.h"
#include "delta/changes.h"

namespace segue {
namespace {

// Little-endian value of the `width` bytes at `bytes`.
std::uint64_t ElementAt(const std::byte* bytes, unsigned width) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, width);
  return value;
}

// One thread's buffers.
class ChunkResolver {
 public:
  explicit ChunkResolver(std::uint64_t chunk_size) : reader_(chunk_size) {}

  // Whether the chunk is at its target at the end.
  Result<bool> Resolve(const ChunkWork& work, LiveResolution& found) {
    const Digest digest = DigestOf(work);
    if (digest == work.after) {
      ++found.chunks_at_target;
      return true;
    }
    ++(digest == work.before ? found.chunks_at_base : found.chunks_between);
    if (work.encoding == DeviceEncoding::kRaw) {
      std::memcpy(work.live, work.dense.data(), work.size);
      return DigestOf(work) == work.after;
    }
    SEGUE_RETURN_IF_ERROR(reader_.ReadMask(work));
    const auto split = FindSplit(work, digest);
    if (!split) return false;
    host::ActiveKernels().xor_bytes(work.live + *split, reader_.mask().data() + *split,
                                    work.live + *split, work.size - *split);
    return DigestOf(work) == work.after;
  }

 private:
  static Digest DigestOf(const ChunkWork& work) {
    return host::ActiveKernels().digest(work.key, work.live, work.size);
  }

  // The byte from which on the chunk is still at its base.
  std::optional<std::uint64_t> FindSplit(const ChunkWork& work, const Digest& digest) const {
    const Digest applied = digest - work.before;
    const std::uint64_t start = work.key.first_block * kDigestBlockSize;
    ElementDigester element(work.key.tensor);
    Digest sum;
    if (applied == sum) return 0;
    const std::byte* const mask = reader_.mask().data();
    for (std::uint64_t offset = 0; offset < work.size; offset += work.width) {
      const std::uint64_t change = ElementAt(mask + offset, work.width);
      if (change == 0) continue;
      const std::uint64_t value = ElementAt(work.live + offset, work.width);
      sum += element(start + offset, value, work.width);
      sum -= element(start + offset, value ^ change, work.width);
      if (sum == applied) return offset + work.width;
    }
    return std::nullopt;
  }

  ChangeReader reader_;
};

}  // namespace

Result<LiveResolution> ResolveLive(const Plan& plan, const StagedDelta& staged,
                                   const MutableModelView& live, unsigned threads) {
  const std::vector<ChunkWork> work = staged.AllWork(plan, live);
  const unsigned lanes = ThreadCount(threads);
  std::vector<std::unique_ptr<ChunkResolver>> resolvers(lanes);
  std::vector<LiveResolution> found(lanes);
  SEGUE_RETURN_IF_ERROR(ParallelFor(work.size(), lanes, [&](std::size_t i, unsigned lane) {
    if (!resolvers[lane]) resolvers[lane] = std::make_unique<ChunkResolver>(plan.chunk_size());
    const Result<bool> resolved = resolvers[lane]->Resolve(work[i], found[lane]);
    if (resolved.ok() && resolved.value()) return Status();
    return Tainted(DescribeChunk(plan, staged.rows()[i].chunk) +
                   " is neither at its base nor at its target nor between them");
  }));
  LiveResolution sum;
  for (const LiveResolution& part : found) {
    sum.chunks_at_base += part.chunks_at_base;
    sum.chunks_at_target += part.chunks_at_target;
    sum.chunks_between += part.chunks_between;
  }
  return sum;
}

}  // namespace segue
