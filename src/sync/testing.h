// SPDX-License-Identifier: Apache-2.0
//
// For tests of this folder: a trainer in miniature, whose checkpoints change step by step, and
// helpers that compare files byte for byte.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/testing.h"
#include "segue/apply.h"
#include "segue/publish.h"

namespace segue::test {

// Writes versions v0, v1, ... of a small model of several dtypes, in two shards.
class MiniTrainer {
 public:
  explicit MiniTrainer(std::string root) : root_(std::move(root)) {
    tensors_ = {RandomTensor({"a.weight", Dtype::kBF16, {300, 1000}}, 1),
                RandomTensor({"b.weight", Dtype::kU8, {70000}}, 2),
                RandomTensor({"c.scale", Dtype::kF32, {}}, 3),
                RandomTensor({"d.empty", Dtype::kF16, {0, 4}}, 4),
                RandomTensor({"e.ids", Dtype::kI64, {4097}}, 5)};
    Write();
  }

  std::string Directory(std::uint64_t version) const {
    return JoinPath(root_, "v" + std::to_string(version));
  }
  std::uint64_t version() const { return version_; }
  std::vector<TestTensor>& tensors() { return tensors_; }

  // Flips the low bit of about one byte in `every`, at places that depend on `seed`, and writes the
  // next version.
  void Step(std::uint64_t seed, std::uint64_t every = 500) {
    Random random(seed);
    for (TestTensor& tensor : tensors_) {
      const std::uint64_t count = tensor.bytes.empty() ? 0 : tensor.bytes.size() / every + 1;
      for (std::uint64_t i = 0; i < count; ++i) {
        tensor.bytes[random.Below(tensor.bytes.size())] ^= std::byte{1};
      }
    }
    ++version_;
    Write();
  }

  void Write() {
    const std::string directory = Directory(version_);
    SEGUE_CHECK(MakeDirectories(directory).ok());
    WriteShardedCheckpoint(directory,
                           {{tensors_[3], tensors_[0]}, {tensors_[1], tensors_[2], tensors_[4]}});
  }

 private:
  std::string root_;
  std::vector<TestTensor> tensors_;
  std::uint64_t version_ = 0;
};

inline PublishOptions PublishOf(const std::string& store, const std::string& base,
                                const std::string& target) {
  PublishOptions options;
  options.store = store;
  options.base = base;
  options.target = target;
  options.chunk_size = 65536;
  options.threads = 2;
  return options;
}

inline ApplyOptions ApplyOf(const std::string& store, const std::string& checkpoint) {
  ApplyOptions options;
  options.store = store;
  options.checkpoint = checkpoint;
  options.threads = 2;
  return options;
}

inline std::string CopyOf(const std::string& directory, const std::string& copy) {
  std::filesystem::copy(directory, copy, std::filesystem::copy_options::recursive);
  return copy;
}

// Shards and index agree byte for byte.
inline bool SameFiles(const std::string& a, const std::string& b) {
  const auto names = ListDirectory(a);
  if (!names.ok()) return false;
  for (const std::string& name : names.value()) {
    if (name == ".segue") continue;
    const auto left = ReadFile(JoinPath(a, name), 1u << 30);
    const auto right = ReadFile(JoinPath(b, name), 1u << 30);
    if (!left.ok() || !right.ok() || left.value() != right.value()) return false;
  }
  return true;
}

}  // namespace segue::test
