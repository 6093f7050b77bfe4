// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are written to while a publisher compares them: what is not one state of them, as
// far as a delta can tell, is refused before anybody sees it, and the lineage stays good. Method: a
// thread writes all the time; every publish either makes a version that an engine reaches, or is
// refused with nothing changed.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "segue/publisher.h"
#include "sync/lineage.h"
#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::SourcesOf;
using testing::HasSubstr;

constexpr int kRefusals = 2;
constexpr int kTriesMax = 3000;

class PublisherWrittenTest : public testing::TestWithParam<const char*> {
 protected:
  std::uint64_t VersionCount() const {
    const auto store = OpenStore(store_, /*create=*/true).value();
    return Lineage::ListVersions(*store, "default").value().size();
  }
  // From the trainer's first files to the newest version, which proves each byte on the way.
  void ExpectEngineReaches(std::uint64_t version) {
    const std::string engine =
        CopyOf(trainer_.Directory(0), directory_.File("engine" + std::to_string(version)));
    ApplyOptions options = ApplyOf(store_, engine);
    options.output = engine + "-new";
    const auto report = Apply(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->target_version, version);
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
};

// Flips bits of one tensor until it is destroyed: of few elements at a time, so that chunks are
// sparse, and of runs, so that they are not.
class Writer {
 public:
  explicit Writer(ByteVector& bytes) : bytes_(bytes) {}
  void Stop() { thread_ = {}; }

 private:
  void Write(const std::stop_token& stop) {
    Random random(7);
    while (!stop.stop_requested()) {
      std::size_t at = random.Below(bytes_.size());
      const std::size_t run = random.Below(100) == 0 ? 20000 : 1;
      for (std::size_t i = 0; i < run; ++i) {
        // As a trainer's store would be: whole, and seen by other threads some time.
        std::atomic_ref(reinterpret_cast<unsigned char&>(bytes_[at])).fetch_xor(1);
        at = (at + 1) % bytes_.size();
      }
    }
  }

  ByteVector& bytes_;
  std::jthread thread_{[this](const std::stop_token& stop) { Write(stop); }};
};

TEST_P(PublisherWrittenTest, NothingAppearsThatIsNoState) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "it is a race on purpose, and ThreadSanitizer would say so";
#endif
  PublisherOptions options;
  options.store = store_;
  options.profile = GetParam();
  options.chunk_size = 65536;
  const auto publisher = Publisher::Open(options, SourcesOf(trainer_));
  ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
  std::uint64_t versions = 0;
  int refusals = 0;
  Writer writer(trainer_.tensors()[0].bytes);
  for (int tries = 0; refusals < kRefusals && tries < kTriesMax; ++tries) {
    const auto report = publisher.value()->Publish(SourcesOf(trainer_));
    if (report.ok()) {
      ++versions;
    } else {
      ++refusals;
      ASSERT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().ToString();
      ASSERT_THAT(report.status().message(), HasSubstr("was written to while it was compared"));
    }
    ASSERT_EQ(VersionCount(), versions);
    ASSERT_EQ(publisher.value()->version().value_or(0), versions);
  }
  writer.Stop();
  EXPECT_EQ(refusals, kRefusals);
  const auto quiet = publisher.value()->Publish(SourcesOf(trainer_));
  ASSERT_TRUE(quiet.ok()) << quiet.status().ToString();
  EXPECT_EQ(quiet->target_version, versions + 1);
  ExpectEngineReaches(versions + 1);
  // And the version is what the tensors hold now.
  const auto anew = Publisher::Open(options, SourcesOf(trainer_));
  ASSERT_TRUE(anew.ok()) << anew.status().ToString();
  EXPECT_EQ(anew.value()->version(), versions + 1);
}
INSTANTIATE_TEST_SUITE_P(Profiles, PublisherWrittenTest,
                         testing::Values("sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"),
                         [](const auto& parameters) {
                           std::string name = parameters.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace segue
