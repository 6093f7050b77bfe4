// SPDX-License-Identifier: Apache-2.0
//
// Decode path: kernels that read whole chunks that the GPU itself decodes, a group of them at a
// time. One group is decoded on a stream of its own while the kernel works on the group before it.
// What each decoder wrote is looked at by the host before the kernel reads it: behind a chunk that
// did not decode nothing more is written.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "device/cuda/block_stage.h"
#include "device/cuda/group_slots.h"

namespace segue::cuda {

// How far a run came.
struct DecodeOutcome {
  std::size_t done = 0;  // Of run.items, from the first on: the kernel has worked on them.
  // A chunk that does not decode: what the decoder left is said, not yet whose fault it is. Nothing
  // behind it was done.
  std::optional<Undecodable> undecodable;
  // The decoder took no more of them, for this reason: that chunk, or all of a group.
  Status refused;
};

class DecodePath {
 public:
  static Result<DecodePath> Make(const DriverPointer& driver);

  // Gives `take` each chunk's sums; `run.items` are all staged. Returns when everything has run.
  Result<DecodeOutcome> Run(const KernelSet& kernels, GroupSlots& slots, const BlockStage& stage,
                            const DenseRun& run, CUstream stream);

 private:
  // What all steps of a run need.
  struct Context {
    const KernelSet& kernels;
    GroupSlots& slots;
    const BlockStage& stage;
    const DenseRun& run;
    CUstream stream;
    DecodeOutcome& outcome;
  };
  // A group that is being decoded. Rows of the kernel, then the decoder's input, then its results
  // stand in the host's slot from its beginning on, in the device's behind the chunks.
  struct Ahead {
    Group group;
    unsigned slot = 0;
    std::byte* host = nullptr;
    std::uint64_t input_offset = 0;
    std::uint64_t results_offset = 0;
    std::vector<std::size_t> order;  // The group's chunks as the decoder has them: Snappy first.
    std::vector<DecodeJob> jobs;     // In that order.
  };

  Status RunGroups(const Context& context);
  static Ahead Prepare(const Context& context, Group group, std::byte* host);
  Status Decode(const Context& context, const Ahead& ahead);
  Status Finish(const Context& context, const Ahead& ahead);
  static std::optional<Undecodable> Check(const Context& context, const Ahead& ahead);
  Status Wait(CUstream stream);
  // In the pause nothing goes before the decoder, otherwise everything does.
  CUstream decoding(const DenseRun& run) const {
    return run.kernel == Kernel::kDenseApply ? decoding_in_pause_.get() : decoding_before_.get();
  }

  DriverPointer driver_;
  Stream decoding_before_;
  Stream decoding_in_pause_;
  std::array<Event, 2> decoded_;  // One a slot.
  std::array<Event, 2> used_;
};

}  // namespace segue::cuda
