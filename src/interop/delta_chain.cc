// SPDX-License-Identifier: Apache-2.0
//
// Delta chain: all diffs in one list sorted by tensor, so that a tensor's way through the versions
// is a run of it.
#include "interop/delta_chain.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/threads.h"
#include "interop/disk_source.h"

namespace segue {
namespace {

Status CheckNumbers(const DeltaDirectory& directory, std::uint64_t version) {
  if (directory.version != version) {
    return Corruption("'" + directory.path + "' says that it is version " +
                      std::to_string(directory.version));
  }
  if (directory.base_version + 1 == version) return {};
  return VersionMismatch("'" + directory.path + "' starts from version " +
                         std::to_string(directory.base_version) + ", expected " +
                         std::to_string(version - 1));
}

struct ByTensor {
  bool operator()(const TensorDiff& a, const TensorDiff& b) const {
    return std::pair(a.tensor, a.version) < std::pair(b.tensor, b.version);
  }
  bool operator()(const TensorDiff& a, std::size_t tensor) const { return a.tensor < tensor; }
  bool operator()(std::size_t tensor, const TensorDiff& b) const { return tensor < b.tensor; }
};

}  // namespace

Result<DeltaChain> DeltaChain::Open(const std::string& source, std::uint64_t first,
                                    std::uint64_t last, const Plan& plan, const PathPin& pin) {
  DeltaChain chain(plan);
  if (last >= first && last - first >= limits::kDiskDeltaChainLengthMax) {
    return ResourceExhausted(
        "disk deltas: " + std::to_string(last - first + 1) + " versions on one way, the limit is " +
        std::to_string(limits::kDiskDeltaChainLengthMax) + ": take it in several steps");
  }
  for (std::uint64_t version = first; version <= last; ++version) {
    std::string path = DiskVersionPath(source, version);
    if (pin) {
      SEGUE_ASSIGN_OR_RETURN(path, pin(path));
    }
    const auto number = static_cast<std::uint32_t>(version - first);
    SEGUE_ASSIGN_OR_RETURN(DeltaDirectory directory,
                           OpenDeltaDirectory(path, plan, number, chain.diffs_));
    SEGUE_RETURN_IF_ERROR(CheckNumbers(directory, version));
    chain.versions_.push_back(std::move(directory));
  }
  std::sort(chain.diffs_.begin(), chain.diffs_.end(), ByTensor());
  for (const TensorDiff& diff : chain.diffs_) {
    const bool is_new = chain.changed_.empty() || chain.changed_.back() != diff.tensor;
    if (is_new) chain.changed_.push_back(diff.tensor);
  }
  return chain;
}

bool DeltaChain::Changes(std::size_t tensor) const { return !DiffsOf(tensor).empty(); }

std::span<const TensorDiff> DeltaChain::DiffsOf(std::size_t tensor) const {
  const auto [begin, end] = std::equal_range(diffs_.begin(), diffs_.end(), tensor, ByTensor());
  return std::span(diffs_).subspan(static_cast<std::size_t>(begin - diffs_.begin()),
                                   static_cast<std::size_t>(end - begin));
}

Status DeltaChain::Fold(std::size_t tensor, MutableByteSpan bytes, FoldScratch& scratch) const {
  for (const TensorDiff& diff : DiffsOf(tensor)) {
    const Status status = Apply(diff, bytes, scratch);
    if (status.ok()) continue;
    const DeltaDirectory& version = versions_[diff.version];
    return status.WithContext("'" + version.path + "': tensor " +
                              Quoted(plan_->tensors()[tensor].spec.name));
  }
  return {};
}

Status DeltaChain::Apply(const TensorDiff& diff, MutableByteSpan bytes,
                         FoldScratch& scratch) const {
  const DeltaDirectory& version = versions_[diff.version];
  SEGUE_ASSIGN_OR_RETURN(const ByteVector frame, version.ReadFrame(diff));
  SEGUE_RETURN_IF_ERROR(scratch.frames.Apply(version.encoding, frame, bytes));
  scratch.hasher.Start(version.checksum);
  scratch.hasher.Add(bytes);
  const TensorChecksum found = scratch.hasher.Finish();
  if (found == diff.checksum) return {};
  return Corruption("the new bytes have " + std::string(ChecksumKindName(version.checksum)) + " " +
                    found.ToHex(version.checksum) + ", expected " +
                    diff.checksum.ToHex(version.checksum) +
                    ": the diff is wrong, or the bytes before are not those of version " +
                    std::to_string(version.base_version));
}

Status FoldAll(const DeltaChain& chain, unsigned threads,
               const std::function<ByteSpan(std::size_t tensor)>& base,
               const std::function<Status(std::span<const FoldedTensor>)>& consume) {
  const auto& changed = chain.changed();
  const std::size_t width = std::min<std::size_t>(ThreadCount(threads), changed.size());
  std::vector<FoldScratch> scratch(width);
  std::vector<FoldedTensor> batch(width);
  for (std::size_t begin = 0; begin < changed.size(); begin += width) {
    const std::size_t count = std::min(width, changed.size() - begin);
    SEGUE_RETURN_IF_ERROR(ParallelFor(count, threads, [&](std::size_t i, unsigned) -> Status {
      FoldedTensor& folded = batch[i];
      folded.tensor = changed[begin + i];
      const ByteSpan old_bytes = base(folded.tensor);
      folded.bytes.assign(old_bytes.begin(), old_bytes.end());
      return chain.Fold(folded.tensor, folded.bytes, scratch[i]);
    }));
    SEGUE_RETURN_IF_ERROR(consume(std::span(batch).first(count)));
  }
  return {};
}

}  // namespace segue
