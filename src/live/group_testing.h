// SPDX-License-Identifier: Apache-2.0
//
// What the tests of receiver groups share: two lineages in one store, each with a trainer, whose
// weights lie in buffers here or in segments.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "live/testing.h"
#include "segue/receiver_group.h"
#include "sync/testing.h"

namespace segue::test {

struct GroupLineage {
  GroupLineage(std::string name_in, const std::string& root, const std::string& store)
      : name(std::move(name_in)), trainer(root + "/" + name) {
    options.store = store;
    options.lineage = name;
    options.checkpoint = trainer.Directory(0);
    options.staging = root + "/staging";
    options.threads = options.background_threads = 1;
    options.gate_deadline = std::chrono::milliseconds(5000);
  }

  void Advance(std::uint64_t seed) {
    trainer.Step(seed, 2000);
    Remember();  // Before anybody can hold it.
    PublishOptions publish = PublishOf(options.store, trainer.Directory(trainer.version() - 1),
                                       trainer.Directory(trainer.version()));
    publish.lineage = name;
    SEGUE_CHECK(Publish(publish).ok());
  }

  // Version 0 in buffers here.
  void Bind() {
    Remember();
    const Checkpoint base = Checkpoint::Open(trainer.Directory(0)).value();
    for (std::size_t i = 0; i < base.tensors().size(); ++i) {
      const ByteSpan bytes = base.TensorBytes(i);
      buffers.emplace_back(bytes.begin(), bytes.end());
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const TensorSpec& spec = base.tensors()[i].spec;
      model.tensors.push_back({spec.name, std::string(DtypeName(spec.dtype)), spec.shape,
                               buffers[i].data(), buffers[i].size()});
    }
  }

  // Which version the buffers hold, by their bytes; kNone for none.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t Held() const {
    const std::lock_guard lock(mutex);
    for (std::uint64_t version = 0; version < versions.size(); ++version) {
      if (versions[version] == buffers) return version;
    }
    return kNone;
  }

  std::vector<ByteVector> BytesOf(std::uint64_t version) const {
    const Checkpoint checkpoint = Checkpoint::Open(trainer.Directory(version)).value();
    std::vector<ByteVector> tensors;
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const ByteSpan bytes = checkpoint.TensorBytes(i);
      tensors.emplace_back(bytes.begin(), bytes.end());
    }
    return tensors;
  }

  const std::string name;
  MiniTrainer trainer;
  ReceiverOptions options;
  BoundModel model = {};
  std::vector<ByteVector> buffers = {};
  std::function<void()> at_close = {};  // Once its gate is closed.
  // Grows while a follower's gate looks (Held).
  mutable std::mutex mutex;
  std::vector<std::vector<ByteVector>> versions = {};

 private:
  void Remember() {
    const std::lock_guard lock(mutex);
    while (versions.size() <= trainer.version()) versions.push_back(BytesOf(versions.size()));
  }
};

class GroupFixture : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  std::string store_ = directory_.File("store");
  GroupLineage policy_{"policy", directory_.path(), store_};
  GroupLineage draft_{"draft", directory_.path(), store_};
  GroupOptions options_;
};

}  // namespace segue::test
