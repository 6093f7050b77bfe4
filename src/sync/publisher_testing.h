// SPDX-License-Identifier: Apache-2.0
//
// For tests of the publisher: one of MiniTrainer's buffers, engines that follow what it makes, and
// a disk that fills up.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "segue/inspect.h"
#include "segue/publisher.h"
#include "sync/testing.h"

namespace segue::test {

inline std::vector<SourceTensor> SourcesOf(MiniTrainer& trainer) {
  std::vector<SourceTensor> sources;
  for (const TestTensor& tensor : trainer.tensors()) {
    sources.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                       tensor.spec.shape, tensor.bytes.data(), tensor.bytes.size()});
  }
  return sources;
}

// Every second tensor, from the owner's number on; the others without bytes.
inline std::vector<SourceTensor> SourcesOf(MiniTrainer& trainer, std::uint32_t owner,
                                           std::uint32_t owner_count) {
  std::vector<SourceTensor> sources = SourcesOf(trainer);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (i % owner_count != owner) sources[i].data = nullptr;
  }
  return sources;
}

class PublisherTest : public testing::Test {
 protected:
  PublisherOptions Options() const {
    PublisherOptions options;
    options.store = store_;
    options.chunk_size = 65536;
    options.threads = 2;
    return options;
  }
  std::unique_ptr<Publisher> Open(const PublisherOptions& options) {
    auto publisher = Publisher::Open(options, SourcesOf(trainer_));
    EXPECT_TRUE(publisher.ok()) << publisher.status().ToString();
    return std::move(publisher).value();
  }
  PublishReport PublishStep(Publisher& publisher, std::uint64_t seed, std::uint64_t every = 500) {
    trainer_.Step(seed, every);
    const auto report = publisher.Publish(SourcesOf(trainer_));
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? report.value() : PublishReport();
  }
  // An engine at version `from` of the trainer's files comes to the newest version's bytes.
  void ExpectReaches(std::uint64_t from, std::uint64_t version) {
    const std::string engine =
        CopyOf(trainer_.Directory(from), directory_.File("engine" + std::to_string(engines_++)));
    ApplyOptions options = ApplyOf(store_, engine);
    options.output = engine + "-new";
    const auto report = Apply(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->target_version, version);
    VerifyOptions verify;
    verify.checkpoint = options.output;
    verify.against = trainer_.Directory(trainer_.version());
    const auto verified = Verify(verify);
    EXPECT_TRUE(verified.ok()) << verified.status().ToString();
  }

  TemporaryDirectory directory_;
  MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  int engines_ = 0;
};

// No write beyond this size succeeds while it lives: a disk that fills up in the middle.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = size;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

}  // namespace segue::test
