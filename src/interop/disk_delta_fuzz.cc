// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: what trainers of others write, as found. The first byte says what the rest is: an
// index, an `xor` or an `overwrite` frame for a tensor, or a shard beside a good index, which is
// opened and folded as a pull does it. Whatever is taken must keep to the tensor's bytes, and an
// index that is read must read the same again when it is written.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "interop/delta_chain.h"
#include "interop/delta_index.h"
#include "interop/disk_source.h"

namespace {

using segue::ByteSpan;
using segue::ByteVector;

constexpr std::size_t kTensorSize = 3000;
constexpr char kShard[] = "model-00000-of-00001.safetensors";

void ReadIndex(ByteSpan bytes) {
  const auto index = segue::ParseDeltaIndex(bytes, "index");
  if (!index.ok() || !index.value()) return;
  const std::string text = segue::MakeDeltaIndex(*index.value());
  const auto again = segue::ParseDeltaIndex(segue::AsBytes(text), "index");
  SEGUE_CHECK(again.ok() && again.value());
  SEGUE_CHECK(segue::MakeDeltaIndex(*again.value()) == text);
}

void ApplyFrame(segue::DeltaEncoding encoding, ByteSpan frame) {
  static segue::DeltaFrameReader reader;
  // The exact size on the heap, so that a write past the end is seen.
  ByteVector tensor(kTensorSize);
  (void)reader.Apply(encoding, frame, tensor);
}

std::string Scratch() {
  const char* const folder = std::getenv("TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/disk-delta-fuzz-" +
         std::to_string(::getpid());
}

void FoldShard(segue::DeltaEncoding encoding, ByteSpan shard) {
  static const std::string source = Scratch();
  static const segue::Plan plan =
      segue::Plan::Make({{"a", segue::Dtype::kU8, {kTensorSize}}, {"b", segue::Dtype::kU8, {0}}})
          .value();
  const std::string directory = segue::DiskVersionPath(source, 1);
  SEGUE_CHECK(segue::MakeDirectories(directory).ok());
  segue::DeltaIndex index;
  index.version = 1;
  index.encoding = encoding;
  index.checksum = segue::ChecksumKind::kAdler32;
  index.map.shards = {kShard};
  index.map.entries = {{"a", 0}};
  const std::string text = segue::MakeDeltaIndex(index);
  SEGUE_CHECK(segue::WriteFileAtomic(segue::JoinPath(directory, segue::kIndexFileName),
                                     segue::AsBytes(text))
                  .ok());
  SEGUE_CHECK(segue::WriteFileAtomic(segue::JoinPath(directory, kShard), shard).ok());
  const auto chain = segue::DeltaChain::Open(source, 1, 1, plan);
  if (chain.ok()) {
    SEGUE_CHECK(chain->Changes(0) && !chain->Changes(1));
    segue::FoldScratch scratch;
    ByteVector tensor(kTensorSize);
    (void)chain->Fold(0, tensor, scratch);
  }
  SEGUE_CHECK(segue::RemoveTree(source).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteVector rest(reinterpret_cast<const std::byte*>(data) + 1,
                        reinterpret_cast<const std::byte*>(data) + size);
  switch (data[0] % 5) {
    case 0: ReadIndex(rest); break;
    case 1: ApplyFrame(segue::DeltaEncoding::kXor, rest); break;
    case 2: ApplyFrame(segue::DeltaEncoding::kOverwrite, rest); break;
    case 3: FoldShard(segue::DeltaEncoding::kXor, rest); break;
    default: FoldShard(segue::DeltaEncoding::kOverwrite, rest); break;
  }
  return 0;
}
