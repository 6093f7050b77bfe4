// SPDX-License-Identifier: Apache-2.0
//
// GeneratePair (segue/generate.h): two versions of one large tensor in memory. The tensor is a
// matrix of kColumns columns whose last row may be cut; it is done band by band, so memory beside
// the two buffers is a few megabytes a thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "segue/generate.h"
#include "workload/edits.h"
#include "workload/noise.h"
#include "workload/simulation.h"

namespace segue {
namespace {

using workload::Format;
using workload::Mechanism;
using workload::Preset;

constexpr std::size_t kColumns = 4096;
constexpr float kScale = 0.02f;
// Parts of a seed.
enum : std::uint64_t { kPairPart = 32, kPairEditPart };

struct Pair {
  Preset preset;
  std::uint64_t seed = 0;
  unsigned threads = 0;
  MutableByteSpan base;
  MutableByteSpan target;
};

workload::Dynamics PairDynamics(const Pair& pair) {
  workload::Dynamics dynamics;
  dynamics.key = workload::SubKey(pair.seed, kPairPart);
  dynamics.rows = DivideUp(pair.base.size(), workload::CodesSize(pair.preset.format, 1, kColumns));
  dynamics.columns = kColumns;
  dynamics.scale = kScale;
  dynamics.learning_rate = pair.preset.learning_rate;
  dynamics.damping = pair.preset.damping;
  dynamics.rule = pair.preset.rule;
  if (pair.preset.format == Format::kFp16) dynamics.origin = workload::Origin::kFp16;
  return dynamics;
}

// Encodes whole rows into `target`, which may end inside the last.
class PairEncoder {
 public:
  explicit PairEncoder(const Preset& preset) {
    options_.format = preset.format;
    options_.from = preset.quantise_from;
    // One scale for the whole tensor: that of the largest weight that can be drawn.
    options_.tensor_scale = workload::Nvfp4TensorScale(workload::NormalTable::kBound * kScale);
  }

  void Encode(std::span<const float> values, MutableByteSpan target) {
    const std::size_t rows = values.size() / kColumns;
    codes_.resize(workload::CodesSize(options_.format, rows, kColumns));
    scales_.resize(workload::ScalesSize(options_.format, rows, kColumns));
    const bool whole = codes_.size() == target.size();
    encoder_.Encode(options_, {values, kColumns}, {whole ? target : codes_, scales_});
    if (!whole) std::memcpy(target.data(), codes_.data(), target.size());
  }

 private:
  workload::EncodeOptions options_;
  workload::Encoder encoder_;
  ByteVector codes_;
  ByteVector scales_;
};

// Calls job(index, base piece, target piece) for pieces of `size` bytes on several threads, and
// returns the count of elements that differ afterwards.
template <typename Job>
std::uint64_t ForEachPiece(const Pair& pair, std::size_t size, Job job) {
  std::atomic<std::uint64_t> changed{0};
  const unsigned bits = workload::Info(pair.preset.format).bits;
  const auto work = [&](std::size_t index, unsigned) -> Status {
    const std::size_t offset = index * size;
    const std::size_t piece_size = std::min(size, pair.base.size() - offset);
    const MutableByteSpan base = pair.base.subspan(offset, piece_size);
    const MutableByteSpan target = pair.target.subspan(offset, piece_size);
    job(index, base, target);
    changed += workload::CountDifferent(bits, base, target);
    return {};
  };
  SEGUE_CHECK(ParallelFor(DivideUp(pair.base.size(), size), pair.threads, work).ok());
  return changed;
}

std::uint64_t RunOptimizer(const Pair& pair) {
  const Format format = pair.preset.format;
  const workload::Dynamics dynamics = PairDynamics(pair);
  const std::size_t band_rows = workload::BandRows(format, kColumns);
  const std::size_t band_size = workload::CodesSize(format, band_rows, kColumns);
  return ForEachPiece(
      pair, band_size, [&](std::size_t index, MutableByteSpan base, MutableByteSpan target) {
        thread_local workload::Band band;
        PairEncoder encoder(pair.preset);
        const std::size_t first_row = index * band_rows;
        band.Start(dynamics, first_row, std::min(band_rows, dynamics.rows - first_row));
        encoder.Encode(band.values(), base);
        if (pair.preset.mechanism == Mechanism::kOptimizer) {
          band.Step();
          encoder.Encode(band.values(), target);
        } else {
          std::memcpy(target.data(), base.data(), base.size());
        }
      });
}

std::uint64_t RunEdits(const Pair& pair) {
  const std::uint64_t key = workload::SubKey(pair.seed, kPairEditPart);
  if (pair.preset.mechanism == Mechanism::kAdversarial) {
    return ForEachPiece(pair, workload::kAdversarialBlockSize,
                        [&](std::size_t index, MutableByteSpan base, MutableByteSpan target) {
                          workload::FillAdversarialBlock(key, index, base);
                          std::memcpy(target.data(), base.data(), base.size());
                          workload::EditAdversarialBlock(key + 1, index, target);
                        });
  }
  RunOptimizer(pair);
  if (pair.preset.mechanism == Mechanism::kOneBit) {
    if (pair.target.empty()) return 0;
    pair.target[2 * (workload::HashAt(key, 0) % (pair.target.size() / 2))] ^= std::byte{1};
    return 1;
  }
  return ForEachPiece(pair, workload::kProxyFrameSize,
                      [&](std::size_t index, MutableByteSpan, MutableByteSpan target) {
                        workload::FlipProxyFrame(key, index, workload::kProxyRate, 1, target);
                      });
}

}  // namespace

Result<std::uint64_t> GeneratePair(std::string_view preset_name, std::uint64_t seed,
                                   unsigned threads, std::span<std::byte> base,
                                   std::span<std::byte> target) {
  SEGUE_ASSIGN_OR_RETURN(const Preset preset, workload::FindPreset(preset_name));
  const std::size_t element_size = workload::Info(preset.format).bits == 16 ? 2 : 1;
  if (base.size() != target.size() || base.size() % element_size != 0) {
    return InvalidArgument("base has " + std::to_string(base.size()) + " bytes, target " +
                           std::to_string(target.size()) +
                           "; they must be equal and multiples of " + std::to_string(element_size));
  }
  const Pair pair{preset, seed, threads, base, target};
  return preset.mechanism == Mechanism::kOptimizer ? RunOptimizer(pair) : RunEdits(pair);
}

}  // namespace segue
