// SPDX-License-Identifier: Apache-2.0
//
// Compose: a merge of two sorted lists of rows.
#include "delta/compose.h"

#include <algorithm>
#include <cstring>

#include "delta/applier.h"
#include "delta/changes.h"
#include "delta/encoder.h"

namespace segue {
namespace {

constexpr std::uint64_t kGroupRowsMax = 32;

class Composer {
 public:
  Composer(const Plan& plan, const StagedDelta& first, const StagedDelta& second, Profile profile,
           PayloadWriter::Sink sink)
      : plan_(plan),
        first_(first),
        second_(second),
        encoder_(profile, plan.chunk_size()),
        changes_(plan.chunk_size()),
        mask_(plan.chunk_size()),
        writer_(std::move(sink)) {}

  Result<PayloadSummary> Run() {
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < first_.rows().size() || j < second_.rows().size()) {
      const std::uint64_t a = i < first_.rows().size() ? first_.rows()[i].chunk : UINT64_MAX;
      const std::uint64_t b = j < second_.rows().size() ? second_.rows()[j].chunk : UINT64_MAX;
      if (!group_.HasRoomFor(plan_.Chunk(std::min(a, b)).size)) {
        SEGUE_RETURN_IF_ERROR(CloseGroup());
      }
      if (a == b) {
        SEGUE_RETURN_IF_ERROR(Join(i, j));
      } else if (a < b) {
        group_.AddRow(first_.rows()[i], first_.Parts(plan_, i));
      } else {
        group_.AddRow(second_.rows()[j], second_.Parts(plan_, j));
      }
      i += a <= b ? 1 : 0;
      j += b <= a ? 1 : 0;
      ++group_rows_;
      if (group_rows_ >= kGroupRowsMax || group_.IsFull()) {
        SEGUE_RETURN_IF_ERROR(CloseGroup());
      }
    }
    SEGUE_RETURN_IF_ERROR(CloseGroup());
    return writer_.Finish();
  }

 private:
  Status CloseGroup() {
    group_rows_ = 0;
    if (group_.empty()) return {};
    SEGUE_ASSIGN_OR_RETURN(EncodedGroup encoded, group_.Finish());
    return writer_.Append(std::move(encoded));
  }

  // Both deltas touch the chunk.
  Status Join(std::size_t i, std::size_t j) {
    const ChunkRow& a = first_.rows()[i];
    const ChunkRow& b = second_.rows()[j];
    if (a.after != b.before) {
      return Corruption(DescribeChunk(plan_, a.chunk) +
                        ": the chain is broken, one delta ends at " + a.after.ToHex() +
                        ", the next starts at " + b.before.ToHex());
    }
    const ChunkPlace place = plan_.Chunk(a.chunk);
    if (b.encoding == Encoding::kRaw) {
      return AddRaw(place, a, b, second_.Parts(plan_, j)[kStreamDense]);
    }
    SEGUE_RETURN_IF_ERROR(changes_.ReadMask(second_.Work(plan_, j, nullptr)));
    std::memcpy(mask_.data(), changes_.mask().data(), place.size);
    if (a.encoding == Encoding::kRaw) {
      Xor(first_.Parts(plan_, i)[kStreamDense], place.size);
      return AddRaw(place, a, b, ByteSpan(mask_).first(place.size));
    }
    SEGUE_RETURN_IF_ERROR(changes_.ReadMask(first_.Work(plan_, i, nullptr)));
    Xor(changes_.mask(), place.size);
    encoder_.EncodeMask(a.chunk, place, mask_.data(), a.before, b.after, group_);
    return {};
  }

  void Xor(ByteSpan other, std::uint64_t size) {
    host::ActiveKernels().xor_bytes(mask_.data(), other.data(), mask_.data(), size);
  }

  // How many elements of a raw chunk differ from the base is not known without it: an upper bound.
  Status AddRaw(const ChunkPlace& place, const ChunkRow& a, const ChunkRow& b, ByteSpan bytes) {
    const std::uint64_t count = std::uint64_t{a.change_count} + b.change_count;
    const RowSums sums = {a.before, b.after, 0,
                          static_cast<std::uint32_t>(std::min(count, place.size / place.width))};
    group_.AddDense(a.chunk, place, sums, Encoding::kRaw, bytes);
    return {};
  }

  const Plan& plan_;
  const StagedDelta& first_;
  const StagedDelta& second_;
  ChunkEncoder encoder_;
  ChangeReader changes_;
  ByteVector mask_;
  GroupBuilder group_;
  std::uint64_t group_rows_ = 0;
  PayloadWriter writer_;
};

}  // namespace

Result<PayloadSummary> ComposeDeltas(const Plan& plan, const StagedDelta& first,
                                     const StagedDelta& second, Profile profile,
                                     PayloadWriter::Sink sink) {
  return Composer(plan, first, second, profile, std::move(sink)).Run();
}

}  // namespace segue
