// SPDX-License-Identifier: Apache-2.0
//
// Goal: sizes are exact or refused, whatever the shape, and messages cannot be forged by a name.
#include "checkpoint/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"

namespace segue {
namespace {

using testing::HasSubstr;

Result<std::uint64_t> SizeOf(Dtype dtype, std::vector<std::uint64_t> shape) {
  return TensorSize({"w", dtype, std::move(shape)});
}

TEST(TensorTest, SizesFollowBits) {  // case A7
  EXPECT_EQ(SizeOf(Dtype::kF32, {}).value(), 4u);
  EXPECT_EQ(SizeOf(Dtype::kF32, {0}).value(), 0u);
  EXPECT_EQ(SizeOf(Dtype::kU8, {3, 0, 2}).value(), 0u);
  EXPECT_EQ(SizeOf(Dtype::kF4, {2, 8}).value(), 8u);
  EXPECT_EQ(SizeOf(Dtype::kF6E2M3, {4}).value(), 3u);
  EXPECT_EQ(SizeOf(Dtype::kF8E8M0, {4}).value(), 4u);
  EXPECT_EQ(SizeOf(Dtype::kC64, {2}).value(), 16u);
  EXPECT_EQ(SizeOf(Dtype::kBool, {5}).value(), 5u);
}

TEST(TensorTest, PartBytesAreRefused) {  // case A7
  const Status status = SizeOf(Dtype::kF4, {3}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "tensor 'w': F4 [3] is 12 bits, not whole bytes");
  EXPECT_FALSE(SizeOf(Dtype::kF6E3M2, {2}).ok());
}

TEST(TensorTest, ProductsThatWrapAreRefused) {  // case A4
  constexpr std::uint64_t kTwo32 = 1ull << 32;
  EXPECT_THAT(SizeOf(Dtype::kU8, {kTwo32, kTwo32}).status().message(), HasSubstr("2^64 elements"));
  EXPECT_THAT(SizeOf(Dtype::kF64, {1ull << 58}).status().message(), HasSubstr("2^64 bits"));
  EXPECT_THAT(SizeOf(Dtype::kU8, {~0ull, ~0ull}).status().message(), HasSubstr("2^64 elements"));
  // The mathematical product is 0 in any order.
  EXPECT_EQ(SizeOf(Dtype::kU8, {kTwo32, kTwo32, 0}).value(), 0u);
  EXPECT_EQ(SizeOf(Dtype::kU8, {0, kTwo32, kTwo32}).value(), 0u);
}

TEST(TensorTest, SizeLimit) {
  EXPECT_EQ(SizeOf(Dtype::kU8, {limits::kTensorSizeMax}).value(), limits::kTensorSizeMax);
  EXPECT_THAT(SizeOf(Dtype::kU8, {limits::kTensorSizeMax + 1}).status().message(),
              HasSubstr("70368744177665 bytes, the limit is 70368744177664"));
}

TEST(TensorTest, Descriptions) {
  EXPECT_EQ(DescribeTensor({"w", Dtype::kBF16, {4, 8}}), "BF16 [4, 8]");
  EXPECT_EQ(DescribeTensor({"w", Dtype::kF32, {}}), "F32 []");
}

TEST(TensorTest, QuotedNamesAreCutToSoMany) {
  const std::vector<std::string> names = {"a", "b\n", "c"};
  EXPECT_EQ(QuotedNames({}, 2), "");
  EXPECT_EQ(QuotedNames(names, 3), "'a', 'b\\x0a', 'c'");
  EXPECT_EQ(QuotedNames(names, 2), "'a', 'b\\x0a' and 1 more");
}

TEST(TensorTest, QuotedShowsControlCharactersAndCutsLongNames) {
  EXPECT_EQ(Quoted("a.b"), "'a.b'");
  EXPECT_EQ(Quoted(std::string_view("x\0y\nz\x7f", 6)), "'x\\x00y\\x0az\\x7f'");
  EXPECT_EQ(Quoted(std::string(201, 'a')),
            std::string("'").append(200, 'a').append("'... (201 bytes)"));
}

}  // namespace
}  // namespace segue
