// SPDX-License-Identifier: Apache-2.0
//
// What a publisher is opened with: one model, whether it comes as tensors, through a reader or from
// a checkpoint; and what is refused.
#include "sync/published_model.h"

#include <gmock/gmock.h>

#include <cstring>

#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::SourcesOf;
using testing::HasSubstr;

class PublishedModelTest : public test::PublisherTest {
 protected:
  template <typename... Base>
  Result<std::unique_ptr<PublishedModel>> OpenModel(const PublisherOptions& options,
                                                    const Base&... base) {
    return OpenPublishedModel(SystemEnvironment(), options, base...);
  }
};

TEST_F(PublishedModelTest, ThreeWaysToOneModel) {
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  std::vector<std::string> names;
  names.reserve(sources.size());
  for (const SourceTensor& tensor : sources) names.push_back(tensor.name);
  const TensorReader read = [&](const std::string& name, std::byte* to, std::uint64_t size) {
    const auto found = std::ranges::find(sources, name, &SourceTensor::name);
    std::memcpy(to, found->data, size);
    return Status();
  };
  const auto tensors = OpenModel(Options(), std::span<const SourceTensor>(sources));
  const auto reader = OpenModel(Options(), std::span<const SourceTensor>(sources),
                                std::span<const std::string>(names), read);
  const auto files =
      OpenModel(Options(), trainer_.Directory(0), std::optional<std::vector<std::string>>());
  for (const auto* model : {&tensors, &reader, &files}) {
    ASSERT_TRUE(model->ok()) << model->status().ToString();
    EXPECT_FALSE(model->value()->lineage);
    EXPECT_FALSE(model->value()->version);
    EXPECT_EQ(model->value()->plan.digest(), tensors.value()->plan.digest());
    EXPECT_EQ(model->value()->owned.ToHex(), tensors.value()->owned.ToHex());
    EXPECT_EQ(model->value()->baseline->digest(), tensors.value()->baseline->digest());
  }
  EXPECT_EQ(tensors.value()->layout.digest(), reader.value()->layout.digest());
  EXPECT_NE(tensors.value()->layout.digest(), files.value()->layout.digest());  // Two shards.
}

// The chunks are the lineage's, whatever the options say.
TEST_F(PublishedModelTest, LineageThatIsThere) {
  PublishStep(*Open(Options()), 1);
  PublisherOptions options = Options();
  options.chunk_size = 4096;
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  const auto model = OpenModel(options, std::span<const SourceTensor>(sources));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model.value()->version, 1u);
  EXPECT_EQ(model.value()->plan.chunk_size(), 65536u);
  const Status none = model.value()->FindVersion(Digest(), "tensors of nobody");
  EXPECT_EQ(none.code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(none.message(), HasSubstr("tensors of nobody have digest"));
}

TEST_F(PublishedModelTest, LineageOfAnotherModel) {
  PublishStep(*Open(Options()), 1);
  std::vector<SourceTensor> sources = SourcesOf(trainer_);
  sources.pop_back();
  EXPECT_EQ(OpenModel(Options(), std::span<const SourceTensor>(sources)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(PublishedModelTest, TensorOfNobody) {
  const std::vector<SourceTensor> sources = SourcesOf(trainer_, 0, 2);
  const Status refused = OpenModel(Options(), std::span<const SourceTensor>(sources)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("'b.weight' has no bytes"));
}

}  // namespace
}  // namespace segue
