// SPDX-License-Identifier: Apache-2.0
//
// Putting tensors: refusals change nothing, sums are those of what was put, and what is missing is
// named.
#include "sync/put_tensors.h"

#include <gmock/gmock.h>

#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::SourcesOf;
using testing::HasSubstr;

class PutTensorsTest : public test::PublisherTest {
 protected:
  void SetUp() override {
    const std::vector<SourceTensor> sources = SourcesOf(trainer_);
    auto model = OpenPublishedModel(SystemEnvironment(), Options(), sources);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::move(model).value();
    put_.emplace(*model_, *ProfileFromName("sparse-zstd"), 2);
    put_->Clear();
  }
  Digest Base() const { return model_->baseline->digest(); }
  StatusCode CodeOf(const SourceTensor& tensor) { return put_->ChangeOf(tensor).status().code(); }

  std::unique_ptr<PublishedModel> model_;
  std::optional<PutTensors> put_;
};

TEST_F(PutTensorsTest, SumsOfWhatIsPut) {
  trainer_.tensors()[1].bytes[5] ^= std::byte{1};
  const auto changes = put_->ChangesOf(SourcesOf(trainer_));
  ASSERT_TRUE(changes.ok()) << changes.status().ToString();
  EXPECT_TRUE(std::ranges::is_sorted(changes.value(), {}, &TensorChange::tensor));
  ASSERT_TRUE(put_->Compare(changes.value()).ok());
  EXPECT_TRUE(put_->AddMissing(false).ok());
  EXPECT_EQ(put_->sums().before, Base());
  EXPECT_NE(put_->sums().after, Base());
  EXPECT_EQ(put_->Take(nullptr)->changed_elements(), 1u);
}

TEST_F(PutTensorsTest, Refusals) {
  const SourceTensor good = SourcesOf(trainer_)[0];
  SourceTensor tensor = good;
  tensor.name = "nobody";
  EXPECT_EQ(CodeOf(tensor), StatusCode::kInvalidArgument);
  tensor = good;
  tensor.dtype = "F16";
  EXPECT_EQ(CodeOf(tensor), StatusCode::kInvalidArgument);
  tensor.dtype = "U9";
  EXPECT_EQ(CodeOf(tensor), StatusCode::kUnsupported);
  tensor = good;
  tensor.size -= 2;
  EXPECT_EQ(CodeOf(tensor), StatusCode::kInvalidArgument);
  EXPECT_EQ(put_->ChangeOf(good.name, good.data, 2).status().code(), StatusCode::kInvalidArgument);
  const std::vector<SourceTensor> twice = {good, good};
  EXPECT_THAT(put_->ChangesOf(twice).status().message(), HasSubstr("put twice"));
  const auto change = put_->ChangeOf(good);  // Nothing of all that was kept.
  ASSERT_TRUE(change.ok()) << change.status().ToString();
  ASSERT_TRUE(put_->Compare({change.value()}).ok());
  EXPECT_THAT(put_->ChangeOf(good).status().message(), HasSubstr("put twice"));
  EXPECT_THAT(put_->AddUnchanged(good.name).message(), HasSubstr("put twice"));
  put_->Clear();
  EXPECT_TRUE(put_->ChangeOf(good).ok());
}

TEST_F(PutTensorsTest, MissingOrUnchanged) {
  ASSERT_TRUE(put_->AddUnchanged("a.weight").ok());
  const Status several = put_->AddMissing(false);
  EXPECT_EQ(several.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(several.message(), HasSubstr("'b.weight' and 2 more were not put"));
  ASSERT_TRUE(put_->AddUnchanged("b.weight").ok());
  ASSERT_TRUE(put_->AddUnchanged("c.scale").ok());
  EXPECT_THAT(put_->AddMissing(false).message(), HasSubstr("'e.ids' was not put"));
  EXPECT_TRUE(put_->AddMissing(true).ok());
  EXPECT_EQ(put_->sums().before, Base());
  EXPECT_EQ(put_->sums().after, Base());
}

}  // namespace
}  // namespace segue
