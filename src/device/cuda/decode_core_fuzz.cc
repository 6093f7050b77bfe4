// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a Snappy or LZ4 block that claims a size, for the decoder cores of GPUs on HostWarp:
// they take exactly what the plain decoders take, with the same bytes, read and write nowhere else,
// and agree with the libraries of the processor. The same bytes as content must survive.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "codec/block_codec.h"
#include "device/cuda/decode_testing.h"

namespace segue::cuda {
namespace {

constexpr std::size_t kSizeMax = 1 << 16;

void CheckBlock(BlockCodec codec, ByteSpan block, std::size_t size) {
  const CoreOutcome outcome = RunCore(codec, block, size);
  const bool decoded = outcome.result.status == DecodeStatus::kDecoded;
  const std::optional<ByteVector> plain = PlainDecode(codec, block, size);
  SEGUE_CHECK(outcome.result.status != DecodeStatus::kNotRun);
  SEGUE_CHECK(decoded == plain.has_value());
  SEGUE_CHECK(!decoded || outcome.bytes == *plain);
  ByteVector target(size);
  const bool is_snappy = codec == BlockCodec::kSnappy;
  const bool library =
      (is_snappy ? SnappyDecompress(block, target) : Lz4Decompress(block, target)).ok();
  SEGUE_CHECK(!is_snappy || library == decoded);
  SEGUE_CHECK(!library || !decoded || target == outcome.bytes);
}

void CheckContent(BlockCodec codec, ByteSpan content) {
  ByteVector block(std::max(SnappyBound(content.size()), Lz4Bound(content.size())));
  block.resize(codec == BlockCodec::kSnappy ? SnappyCompress(content, block)
                                            : Lz4Compress(content, block));
  const CoreOutcome outcome = RunCore(codec, block, content.size());
  SEGUE_CHECK(outcome.result.status == DecodeStatus::kDecoded);
  SEGUE_CHECK(std::equal(content.begin(), content.end(), outcome.bytes.begin()));
}

}  // namespace
}  // namespace segue::cuda

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto codec =
      data[0] % 2 == 0 ? segue::cuda::BlockCodec::kSnappy : segue::cuda::BlockCodec::kLz4;
  const std::size_t claimed =
      (std::size_t{data[1]} | std::size_t{data[2]} << 8) % segue::cuda::kSizeMax;
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size)).subspan(3);
  segue::cuda::CheckBlock(codec, bytes, claimed);
  segue::cuda::CheckContent(codec, bytes);
  return 0;
}
