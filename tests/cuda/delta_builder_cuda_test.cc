// SPDX-License-Identifier: Apache-2.0
//
// A delta of tensors in device memory, large enough for several groups of a payload: those that are
// complete are compressed while the device goes on, where tensors come in order, and the payload is
// that of the host either way.
#include <gtest/gtest.h>

#include "delta/delta_builder.h"
#include "delta/testing.h"
#include "device/cuda/cuda_differ.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

class DeltaBuilderCudaTest : public testing::Test {
 protected:
  static constexpr std::size_t kTensors = 3;
  DeltaBuilderCudaTest() {
    Random random(9);
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
      // Sparse, and a part with so many changes that the host encodes it.
      std::byte* const bytes = target_.Tensor(tensor);
      for (std::uint64_t i = 0; i < kSize; i += i < kSize / 8 * 7 ? 2 : 500) {
        bytes[i] = static_cast<std::byte>(random.Next() >> 56);
      }
      on_device_.push_back(
          std::make_unique<DeviceBytes>(fake_.driver, ByteSpan(base_.Tensor(tensor), kSize)));
      on_device_.push_back(std::make_unique<DeviceBytes>(fake_.driver, ByteSpan(bytes, kSize)));
    }
  }

  ByteVector PayloadOf(DeltaBuilder& builder, bool expects_early) {
    EncodedGroups early;
    StagedDelta staged = Must(builder.Take(&early));
    EXPECT_EQ(!early.empty(), expects_early);
    ByteVector payload;
    const auto sink = [&](ByteSpan bytes) {
      AppendBytes(payload, bytes);
      return Status();
    };
    EXPECT_TRUE(WriteStagedDelta(plan_, staged, 2, sink, std::move(early)).ok());
    return payload;
  }
  TensorChange OnDevice(std::size_t tensor) const {
    const auto address = [](const DeviceBytes& bytes) {
      return reinterpret_cast<const std::byte*>(bytes.address());
    };
    return {tensor, address(*on_device_[2 * tensor]), address(*on_device_[2 * tensor + 1])};
  }

  static constexpr std::uint64_t kSize = 6'000'002;
  FakeDriver fake_;
  Plan plan_ = Plan::Make({test::SpecOfSize("a", Dtype::kBF16, kSize),
                           test::SpecOfSize("b", Dtype::kBF16, kSize),
                           test::SpecOfSize("c", Dtype::kBF16, kSize)})
                   .value();
  test::Model base_{plan_, 1};
  test::Model target_ = base_;
  std::vector<std::unique_ptr<DeviceBytes>> on_device_;
};

TEST_F(DeltaBuilderCudaTest, CompleteGroupsAreCompressedMeanwhile) {
  DeltaBuilder builder(plan_, Profile::kSparseZstd, 2);
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    const TensorChange change = {tensor, base_.Tensor(tensor), target_.Tensor(tensor)};
    ASSERT_TRUE(builder.Add({&change, 1}).ok());
  }
  const ByteVector expected = PayloadOf(builder, /*expects_early=*/false);
  const auto differ = Must(MakeCudaDiffer(fake_.driver, 0, {plan_.chunk_size(), 16 << 20}));
  const std::vector<TensorChange> all = {OnDevice(0), OnDevice(1), OnDevice(2)};
  ASSERT_TRUE(builder.AddOnDevice(all, *differ, false).ok());
  EXPECT_EQ(PayloadOf(builder, /*expects_early=*/true), expected);
  // One by one, and then from the last to the first.
  for (const TensorChange& change : all) {
    ASSERT_TRUE(builder.AddOnDevice({&change, 1}, *differ, false).ok());
  }
  EXPECT_EQ(PayloadOf(builder, /*expects_early=*/true), expected);
  for (auto change = all.rbegin(); change != all.rend(); ++change) {
    ASSERT_TRUE(builder.AddOnDevice({&*change, 1}, *differ, false).ok());
  }
  EXPECT_EQ(PayloadOf(builder, /*expects_early=*/false), expected);
}

}  // namespace
}  // namespace segue::cuda
