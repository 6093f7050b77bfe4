// SPDX-License-Identifier: Apache-2.0
//
// Decoder cores, held against the libraries that the processor uses and against plain
// decoders (decode_testing.h). Method: contents of many kinds and sizes that the libraries
// compressed; blocks of random elements, which no compressor writes; each of those with bytes
// changed, cut or added; and every rule of the forms broken by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/block_codec.h"
#include "device/cuda/decode_testing.h"
#include "fake_cuda/run_kernel.h"

namespace segue::cuda {
namespace {

// By the core on HostWarp, or by the compiled kernel (tests/fake_cuda/run_kernel.h).
CoreOutcome RunKernel(BlockCodec codec, ByteSpan block, std::size_t size) {
  return RunCore(codec, block, size, [](BlockCodec by, const DecodeRow& row) {
    return fake_cuda::RunRow<DecodeResult>(
        by == BlockCodec::kSnappy ? Kernel::kSnappyDecode : Kernel::kLz4Decode, row);
  });
}

ByteVector Hex(const std::string& text) {
  ByteVector bytes(text.size() / 2);
  EXPECT_TRUE(FromHex(text, bytes)) << text;
  return bytes;
}

ByteVector Compress(BlockCodec codec, ByteSpan content) {
  ByteVector block(std::max(SnappyBound(content.size()), Lz4Bound(content.size())));
  block.resize(codec == BlockCodec::kSnappy ? SnappyCompress(content, block)
                                            : Lz4Compress(content, block));
  return block;
}

Status Library(BlockCodec codec, ByteSpan block, MutableByteSpan target) {
  return codec == BlockCodec::kSnappy ? SnappyDecompress(block, target)
                                      : Lz4Decompress(block, target);
}

// Mostly zeros with changes now and then, as masks are; or noise; or short patterns over and over.
ByteVector Content(Random& random, std::size_t size) {
  ByteVector bytes(size);
  const std::uint64_t kind = random.Below(4);
  const std::uint64_t period = 1 + random.Below(kind == 2 ? 70 : 3000);
  for (std::size_t i = 0; i < size; ++i) {
    const auto noise = static_cast<std::byte>(random.Next());
    if (kind == 0) bytes[i] = random.Below(200) == 0 ? noise : std::byte{0};
    if (kind == 1) bytes[i] = noise;
    if (kind >= 2) bytes[i] = i < period || random.Below(500) == 0 ? noise : bytes[i - period];
  }
  return bytes;
}

// A block of elements of every kind, mostly valid, and what it says it decodes to.
struct Elements {
  ByteVector block;
  std::size_t size = 0;

  void Put(std::uint64_t number, unsigned count) {
    for (unsigned i = 0; i < count; ++i) block.push_back(static_cast<std::byte>(number >> 8 * i));
  }
  void PutBytes(Random& random, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) block.push_back(static_cast<std::byte>(random.Next()));
    size += count;
  }
};

std::size_t SomeOffset(Random& random, std::size_t size, std::size_t most) {
  const std::size_t reach = std::min(size, most);
  const std::size_t near = std::min<std::size_t>(reach, random.Below(3) == 0 ? reach : 40);
  return 1 + random.Below(near);
}

void AddSnappyLiteral(Random& random, Elements& elements) {
  const std::size_t count = 1 + random.Below(random.Below(4) == 0 ? 700 : 20);
  const unsigned head = count > 60 ? 2 + static_cast<unsigned>(random.Below(3)) : 0;
  if (head == 0) {
    elements.Put((count - 1) << 2, 1);
  } else {
    elements.Put((59 + head) << 2, 1);
    elements.Put(count - 1, head);
  }
  elements.PutBytes(random, count);
}

Elements SnappyElements(Random& random) {
  Elements body;
  AddSnappyLiteral(random, body);
  for (std::uint64_t left = random.Below(60); left != 0; --left) {
    const std::uint64_t kind = random.Below(4);
    if (kind == 0) {
      AddSnappyLiteral(random, body);
      continue;
    }
    const std::size_t count = kind == 1 ? 4 + random.Below(8) : 1 + random.Below(64);
    const std::size_t offset = SomeOffset(random, body.size, kind == 1 ? 2047 : 65535);
    for (std::uint64_t again = random.Below(5) == 0 ? 1 + random.Below(90) : 1; again != 0;
         --again) {
      if (kind == 1) {
        body.Put(1 | (count - 4) << 2 | offset >> 8 << 5 | (offset & 0xff) << 8, 2);
      } else {
        body.Put(kind | (count - 1) << 2, 1);
        body.Put(offset, kind == 2 ? 2 : 4);
      }
      body.size += count;
    }
  }
  Elements whole;
  std::size_t rest = body.size;
  for (; rest >= 0x80; rest >>= 7) whole.Put(0x80 | (rest & 0x7f), 1);
  whole.Put(rest, 1);
  whole.block.insert(whole.block.end(), body.block.begin(), body.block.end());
  whole.size = body.size;
  return whole;
}

void PutLz4Length(Elements& elements, std::size_t count) {
  if (count < 15) return;
  for (count -= 15; count >= 255; count -= 255) elements.Put(255, 1);
  elements.Put(count, 1);
}

Elements Lz4Elements(Random& random) {
  Elements block;
  for (std::uint64_t left = random.Below(40);; --left) {
    const std::size_t literals =
        block.size == 0 || random.Below(3) == 0 ? 1 + random.Below(600) : random.Below(4);
    const std::size_t count = 4 + random.Below(random.Below(4) == 0 ? 20'000 : 40);
    block.Put(std::min<std::size_t>(literals, 15) << 4 | std::min<std::size_t>(count - 4, 15), 1);
    PutLz4Length(block, literals);
    block.PutBytes(random, literals);
    if (left == 0) return block;
    block.Put(SomeOffset(random, block.size, 65535), 2);
    PutLz4Length(block, count - 4);
    block.size += count;
  }
}

class DecodeCoreTest : public ::testing::TestWithParam<BlockCodec> {
 protected:
  static Elements SomeElements(Random& random) {
    return GetParam() == BlockCodec::kSnappy ? SnappyElements(random) : Lz4Elements(random);
  }
  // The three agree; for LZ4 the library is stricter at the end, and knows no bad offset of 0.
  static void ExpectAgreement(ByteSpan block, std::size_t size) {
    const CoreOutcome outcome = RunKernel(GetParam(), block, size);
    const std::optional<ByteVector> plain = PlainDecode(GetParam(), block, size);
    const bool decoded = outcome.result.status == DecodeStatus::kDecoded;
    ASSERT_EQ(decoded, plain.has_value()) << static_cast<int>(outcome.result.status);
    if (decoded) {
      ASSERT_EQ(outcome.result.written, size);
      ASSERT_EQ(outcome.bytes, *plain);
    }
    ByteVector target(size);
    const bool library = Library(GetParam(), block, target).ok();
    if (GetParam() == BlockCodec::kSnappy) {
      ASSERT_EQ(library, decoded);
    }
    if (library && decoded) {
      ASSERT_EQ(target, outcome.bytes);
    }
  }
};

TEST_P(DecodeCoreTest, DecodesWhatTheLibraryCompressed) {
  Random random(1);
  for (const std::size_t size : {0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 255, 256, 4096, 65535,
                                 65536, 65537, 300'000, 1 << 20}) {
    for (int i = 0; i < 8; ++i) {
      const ByteVector content = Content(random, size);
      const CoreOutcome outcome = RunKernel(GetParam(), Compress(GetParam(), content), size);
      ASSERT_EQ(outcome.result.status, DecodeStatus::kDecoded) << size;
      ASSERT_EQ(outcome.result.written, size);
      ASSERT_EQ(outcome.bytes, content);
    }
  }
}

TEST_P(DecodeCoreTest, DecodesElementsThatNoCompressorWrites) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const Elements elements = SomeElements(random);
    SCOPED_TRACE(i);
    ASSERT_EQ(RunKernel(GetParam(), elements.block, elements.size).result.status,
              DecodeStatus::kDecoded);
    ExpectAgreement(elements.block, elements.size);
  }
}

TEST_P(DecodeCoreTest, TakesAndRefusesWhatThePlainDecoderDoes) {
  Random random(3);
  unsigned refused = 0;
  for (int i = 0; i < 6000; ++i) {
    Elements elements = SomeElements(random);
    ByteVector& block = elements.block;
    const std::size_t place = random.Below(block.size());
    switch (random.Below(4)) {
      case 0: block[place] ^= static_cast<std::byte>(1u << random.Below(8)); break;
      case 1: block.resize(place); break;
      case 2: block[place] = static_cast<std::byte>(random.Next()); break;
      default: block.push_back(static_cast<std::byte>(random.Next()));
    }
    if (random.Below(10) == 0) elements.size += random.Below(3) - 1;
    SCOPED_TRACE(i);
    ExpectAgreement(block, elements.size);
    refused += PlainDecode(GetParam(), block, elements.size).has_value() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 5900u);
}

TEST_P(DecodeCoreTest, NoiseStaysInsideItsTarget) {
  Random random(4);
  for (int i = 0; i < 5000; ++i) {
    ByteVector noise(random.Below(200));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random.Next());
    ExpectAgreement(noise, random.Below(300));
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DecodeCoreTest,
                         ::testing::Values(BlockCodec::kSnappy, BlockCodec::kLz4),
                         [](const auto& parameters) {
                           return std::string(parameters.param == BlockCodec::kSnappy ? "Snappy"
                                                                                      : "Lz4");
                         });

struct Rule {
  const char* block;
  std::size_t size;
  DecodeStatus status;
};

TEST(SnappyCoreTest, NamesTheRuleThatABlockBreaks) {
  for (const Rule& rule : {
           Rule{"00", 0, DecodeStatus::kDecoded},
           Rule{"0408616263", 4, DecodeStatus::kTargetShort},
           Rule{"", 0, DecodeStatus::kWrongLength},
           Rule{"80", 0, DecodeStatus::kWrongLength},
           Rule{"8000", 0, DecodeStatus::kDecoded},
           Rule{"808080808000", 0, DecodeStatus::kWrongLength},
           Rule{"ffffffff0f000000", 4096, DecodeStatus::kWrongLength},  // case F5
           Rule{"0308616263", 4, DecodeStatus::kWrongLength},
           Rule{"04086162", 4, DecodeStatus::kSourceEnds},
           Rule{"04f0", 4, DecodeStatus::kSourceEnds},
           Rule{"04f4ff", 4, DecodeStatus::kSourceEnds},
           Rule{"04fcffffffff61", 4, DecodeStatus::kSourceEnds},
           Rule{"020861626300", 2, DecodeStatus::kTargetEnds},
           Rule{"0500610101", 5, DecodeStatus::kDecoded},
           Rule{"0600610501", 6, DecodeStatus::kDecoded},
           Rule{"05006101", 5, DecodeStatus::kSourceEnds},
           Rule{"0500610100", 5, DecodeStatus::kBadOffset},
           Rule{"0500610102", 5, DecodeStatus::kBadOffset},
           Rule{"04006106", 4, DecodeStatus::kSourceEnds},
           Rule{"0400610affff", 4, DecodeStatus::kBadOffset},
           Rule{"0400610b01000000", 4, DecodeStatus::kDecoded},
           Rule{"0400610b01000001", 4, DecodeStatus::kBadOffset},
           Rule{"0400610f01000000", 4, DecodeStatus::kTargetEnds},
       }) {
    EXPECT_EQ(RunKernel(BlockCodec::kSnappy, Hex(rule.block), rule.size).result.status, rule.status)
        << rule.block;
  }
}

TEST(Lz4CoreTest, NamesTheRuleThatABlockBreaks) {
  for (const Rule& rule : {
           Rule{"00", 0, DecodeStatus::kDecoded},
           Rule{"", 0, DecodeStatus::kSourceEnds},
           Rule{"10", 1, DecodeStatus::kSourceEnds},
           Rule{"1061", 1, DecodeStatus::kDecoded},
           Rule{"1061", 2, DecodeStatus::kTargetShort},
           Rule{"206161", 1, DecodeStatus::kTargetEnds},
           Rule{"f0", 20, DecodeStatus::kSourceEnds},
           Rule{"f0ff", 300, DecodeStatus::kSourceEnds},
           Rule{"10610100", 6, DecodeStatus::kSourceEnds},
           Rule{"106101", 6, DecodeStatus::kSourceEnds},
           Rule{"106101001062", 6, DecodeStatus::kDecoded},
           Rule{"1061010000", 5, DecodeStatus::kDecoded},
           Rule{"106100001062", 6, DecodeStatus::kBadOffset},
           Rule{"106102001062", 6, DecodeStatus::kBadOffset},
           Rule{"1f6101000010", 0, DecodeStatus::kTargetEnds},
           Rule{"1f610100ff", 280, DecodeStatus::kSourceEnds},
           Rule{"1f610100ffff", 600, DecodeStatus::kSourceEnds},
           Rule{"1f610100ff0000", 275, DecodeStatus::kDecoded},
       }) {
    EXPECT_EQ(RunKernel(BlockCodec::kLz4, Hex(rule.block), rule.size).result.status, rule.status)
        << rule.block;
  }
}

// case F5: a megabyte of 255s claims 255 MiB.
TEST(Lz4CoreTest, ABombStopsAtTheTargetsEnd) {
  ByteVector block = Hex("1f610100");
  block.insert(block.end(), 1 << 20, std::byte{255});
  block.push_back(std::byte{0});
  EXPECT_EQ(RunKernel(BlockCodec::kLz4, block, 4096).result.status, DecodeStatus::kTargetEnds);
}

}  // namespace
}  // namespace segue::cuda
