// SPDX-License-Identifier: Apache-2.0
//
// What the tests of a receiver over one segment share: a trainer, its store, and the look of an
// engine at what the segment holds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "checkpoint/checkpoint.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/receiver.h"
#include "sync/testing.h"

namespace segue::test {

class ReceiverFixture : public ::testing::Test {
 protected:
  // `stem`: of the segment's name.
  explicit ReceiverFixture(const std::string& stem) : name_(stem) {}

  void Advance(std::uint64_t seed, std::uint64_t every = 500) {
    trainer_.Step(seed, every);
    const auto published = Publish(PublishOf(store_, trainer_.Directory(trainer_.version() - 1),
                                             trainer_.Directory(trainer_.version())));
    ASSERT_TRUE(published.ok()) << published.status().ToString();
  }

  ReceiverOptions Options(std::uint64_t version = 0) const {
    ReceiverOptions options;
    options.store = store_;
    options.checkpoint = trainer_.Directory(version);
    options.name = name_;
    options.staging = directory_.File("staging");
    options.threads = 2;
    options.gate_deadline = std::chrono::milliseconds(5000);
    return options;
  }

  std::unique_ptr<Receiver> Open(const ReceiverOptions& options) {
    auto receiver = Receiver::Open(options);
    EXPECT_TRUE(receiver.ok()) << receiver.status().ToString();
    return receiver.ok() ? std::move(receiver).value() : nullptr;
  }

  static PrepareRequest To(std::uint64_t version, std::string session = "s") {
    PrepareRequest request;
    request.session = std::move(session);
    request.target_version = version;
    return request;
  }

  // What an engine that attaches now sees is the trainer's version, every byte.
  void ExpectLive(std::uint64_t version) {
    auto weights = EngineWeights::Attach(name_, std::chrono::milliseconds(1000));
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    ExpectSees(*weights, version);
  }
  void ExpectSees(EngineWeights& weights, std::uint64_t version) {
    const auto step = weights.BeginStep(std::chrono::milliseconds(1000));
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    EXPECT_EQ(weights.version().version, version);
    const Checkpoint expected = Checkpoint::Open(trainer_.Directory(version)).value();
    ASSERT_EQ(weights.tensors().size(), expected.tensors().size());
    for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
      const EngineTensor& tensor = weights.tensors()[i];
      const ByteSpan bytes(tensor.data, tensor.size);
      EXPECT_TRUE(std::ranges::equal(bytes, expected.TensorBytes(i))) << tensor.name;
    }
  }

  TemporaryDirectory directory_;
  MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  SegmentName name_;
};

}  // namespace segue::test
