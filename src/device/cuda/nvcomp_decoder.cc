// SPDX-License-Identifier: Apache-2.0
//
// Input: addresses of blocks, their sizes, sizes of targets, addresses of targets. Results: actual
// sizes, then codes. Each is an array over all jobs.
#include "device/cuda/nvcomp_decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/cuda/packed.h"

namespace segue::cuda {
namespace {

using nvcomp::Code;

static_assert(sizeof(std::size_t) == 8 && sizeof(void*) == 8);
constexpr std::uint64_t kWord = 8;
constexpr unsigned kInputs = 4;
static_assert((kInputs + 1) * kWord + sizeof(Code) <= BlockDecoder::kBytesPerJobMax);

// As no decoder writes them.
constexpr std::uint64_t kNotWritten = ~std::uint64_t{0};
constexpr Code kNotRun = -1;

template <typename T>
T At(CUdeviceptr place) {
  return reinterpret_cast<T>(place);
}

JobsBound BoundOf(std::span<const DecodeJob> jobs) {
  JobsBound bound;
  for (const DecodeJob& job : jobs) {
    ++bound.count;
    bound.size_max = std::max(bound.size_max, job.target_size);
    bound.size += job.target_size;
  }
  return bound;
}

class NvcompDecoder final : public BlockDecoder {
 public:
  explicit NvcompDecoder(std::shared_ptr<const NvcompLibrary> library)
      : library_(std::move(library)) {}

  std::uint64_t InputSize(std::size_t count) const override { return count * kInputs * kWord; }
  std::uint64_t ResultSize(std::size_t count) const override {
    return count * (kWord + sizeof(Code));
  }

  // The codecs of a group come one after the other, in one stream.
  Result<std::uint64_t> ScratchSize(const JobsBound& bound) const override {
    std::uint64_t size = 0;
    for (const NvcompLibrary::Codec* codec : {&library_->snappy(), &library_->lz4()}) {
      SEGUE_ASSIGN_OR_RETURN(
          const std::uint64_t more,
          library_->TempSize(*codec, bound.count, bound.size_max, bound.size, nullptr));
      size = std::max(size, more);
    }
    return size;
  }

  void Write(std::span<const DecodeJob> jobs, std::byte* place) const override {
    const std::uint64_t array = jobs.size() * kWord;
    std::byte* const results = place + InputSize(jobs.size());
    for (std::size_t k = 0; k < jobs.size(); ++k) {
      WriteAt(place, k, jobs[k].source);
      WriteAt(place + array, k, jobs[k].source_size);
      WriteAt(place + 2 * array, k, jobs[k].target_size);
      WriteAt(place + 3 * array, k, jobs[k].target);
      WriteAt(results, k, kNotWritten);
      WriteAt(results + array, k, kNotRun);
    }
  }

  Result<std::optional<Refusal>> Enqueue(std::span<const DecodeJob> jobs, CUdeviceptr place,
                                         const DeviceBuffer& scratch,
                                         CUstream stream) const override {
    const std::size_t snappy = SnappyCount(jobs);
    Status status = Call(library_->snappy(), jobs, 0, snappy, place, scratch, stream);
    if (status.ok()) {
      status = Call(library_->lz4(), jobs, snappy, jobs.size() - snappy, place, scratch, stream);
    }
    if (status.ok()) return std::optional<Refusal>();
    return std::optional(Refusal{jobs.size(), std::move(status)});
  }

  Status Examine(std::span<const DecodeJob> jobs, std::size_t k,
                 const std::byte* results) const override {
    const auto actual = ReadAt<std::uint64_t>(results, k);
    const auto code = ReadAt<Code>(results + jobs.size() * kWord, k);
    if (code == nvcomp::kSuccess && actual == jobs[k].target_size) return {};
    return WrongSize(actual == kNotWritten ? 0 : actual, jobs[k],
                     code == kNotRun ? ", not run" : ", nvCOMP's code " + std::to_string(code));
  }

 private:
  // Jobs `first` to `first + count`, all of one codec.
  Status Call(const NvcompLibrary::Codec& codec, std::span<const DecodeJob> jobs, std::size_t first,
              std::size_t count, CUdeviceptr place, const DeviceBuffer& scratch,
              CUstream stream) const {
    if (count == 0) return {};
    const JobsBound bound = BoundOf(jobs.subspan(first, count));
    SEGUE_ASSIGN_OR_RETURN(
        const std::uint64_t needed,
        library_->TempSize(codec, bound.count, bound.size_max, bound.size, stream));
    if (needed > scratch.size) {
      return Internal("nvCOMP wants " + std::to_string(needed) + " bytes of temporary memory, " +
                      std::to_string(scratch.size) + " were enough for larger groups");
    }
    const std::uint64_t array = jobs.size() * kWord;
    const CUdeviceptr words = place + first * kWord;
    const CUdeviceptr results = place + InputSize(jobs.size());
    return library_->Check(
        codec.decompress(
            At<const void* const*>(words), At<const std::size_t*>(words + array),
            At<const std::size_t*>(words + 2 * array), At<std::size_t*>(results + first * kWord),
            count, scratch.as<void>(), scratch.size, At<void* const*>(words + 3 * array),
            NvcompLibrary::options(), At<Code*>(results + array + first * sizeof(Code)), stream),
        "nvCOMP's decompression");
  }

  const std::shared_ptr<const NvcompLibrary> library_;
};

}  // namespace

std::unique_ptr<const BlockDecoder> MakeNvcompDecoder(
    std::shared_ptr<const NvcompLibrary> library) {
  return std::make_unique<NvcompDecoder>(std::move(library));
}

bool IsAlignedFor(const NvcompLibrary::Codec& codec) {
  const nvcomp::Alignments& wants = codec.alignments;
  const std::size_t most = std::max({wants.input, wants.output, wants.temporary});
  return most != 0 && kDecodeAlignment % most == 0;
}

}  // namespace segue::cuda
