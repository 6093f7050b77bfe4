// SPDX-License-Identifier: Apache-2.0
//
// A publisher's baseline in the memory of a GPU (the fake driver's) whose bytes are no longer what
// was published: the proof names the tensor and what helps, instead of the trainer.
#include <gtest/gtest.h>

#include <cstdlib>

#include "delta/delta_builder.h"
#include "delta/testing.h"
#include "device/cuda/testing.h"
#include "sync/baseline.h"

namespace segue::cuda {
namespace {

class BaselineCudaTest : public testing::Test {
 protected:
  BaselineCudaTest() {
    setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1);
    test::Mutate(plan_, target_, 0.01, 5);
    owned_.Add(0);
    owned_.Add(1);
    place_.differ = Must(OpenDiffer("cuda:0", {.chunk_size_max = 4096}));
    place_.accelerator = Must(OpenAccelerator("cuda:0", 2));
    baseline_ = Must(Baseline::Copy(plan_, owned_, base_.view(), 2, place_));
  }
  ~BaselineCudaTest() override { unsetenv("SEGUE_CUDA_DRIVER"); }

  StagedDelta Difference() {
    DeltaBuilder builder(plan_, Profile::kSparseZstd, 2);
    std::vector<TensorChange> changes;
    for (const std::size_t tensor : {0, 1}) {
      changes.push_back({tensor, base_.Tensor(tensor), target_.Tensor(tensor)});
    }
    EXPECT_TRUE(builder.Add(changes).ok());
    return builder.Take().value();
  }
  void FlipInBaseline(std::size_t tensor, std::size_t place) {
    auto* const live = const_cast<std::byte*>(baseline_->Tensor(tensor)) + place;
    std::byte byte{};
    const DiffCopy down = {live, &byte, 1};
    ASSERT_TRUE(place_.differ->Copy({&down, 1}).ok());
    byte ^= std::byte{4};
    const DiffCopy up = {&byte, live, 1};
    ASSERT_TRUE(place_.differ->Copy({&up, 1}).ok());
  }

  FakeDriver fake_;
  const Plan plan_ = Plan::Make({test::SpecOfSize("a", Dtype::kBF16, 50'002),
                                 test::SpecOfSize("b", Dtype::kU8, 30'000)},
                                4096)
                         .value();
  test::Model base_{plan_, 1};
  test::Model target_ = base_;
  TensorSet owned_{2};
  BaselinePlace place_;
  std::unique_ptr<Baseline> baseline_;
};

TEST_F(BaselineCudaTest, OneThatFailedIsNamed) {
  const Digest after = baseline_->digest() + Difference().difference();
  EXPECT_TRUE(baseline_->Prove(Difference(), after).ok());
  FlipInBaseline(1, 777);
  base_.Tensor(1)[777] ^= std::byte{4};  // So it was compared.
  const Status failed = baseline_->Prove(Difference(), after);
  EXPECT_EQ(failed.code(), StatusCode::kTainted) << failed.ToString();
  EXPECT_NE(failed.message().find("tensor 'b'"), std::string::npos) << failed.message();
  EXPECT_NE(failed.message().find("open the publisher anew"), std::string::npos);
}

TEST_F(BaselineCudaTest, ADeltaAtFaultIsNoFaultOfTheBaseline) {
  const Digest after = baseline_->digest() + Difference().difference();
  const Status failed = baseline_->Prove(Difference(), after + after);
  EXPECT_EQ(failed.code(), StatusCode::kCorruption) << failed.ToString();
}

}  // namespace
}  // namespace segue::cuda
