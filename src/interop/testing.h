// SPDX-License-Identifier: Apache-2.0
//
// For tests of this folder: Zstd frames made with libzstd's own interface, so that they can break
// rules, and a small model with directories of its disk deltas.
#pragma once

#include <zstd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/random.h"
#include "checkpoint/testing.h"
#include "codec/block_codec.h"
#include "interop/delta_writer.h"
#include "interop/disk_source.h"

namespace segue::test {

// Content size stated.
inline ByteVector Frame(ByteSpan content) {
  ByteVector frame(ZstdBound(content.size()));
  frame.resize(ZstdCompressor().Compress(content, frame).value());
  return frame;
}

// The same without a content size.
inline ByteVector UnsizedFrame(ByteSpan content) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ByteVector frame(ZSTD_compressBound(content.size()));
  const std::size_t size =
      ZSTD_compress2(context, frame.data(), frame.size(), content.data(), content.size());
  SEGUE_CHECK(ZSTD_isError(size) == 0);
  ZSTD_freeCCtx(context);
  frame.resize(size);
  return frame;
}

// Of a frame that states its content's size.
inline ByteVector ContentOf(ByteSpan frame) {
  ByteVector content(ZSTD_getFrameContentSize(frame.data(), frame.size()));
  const std::size_t size =
      ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size());
  SEGUE_CHECK(size == content.size());
  return content;
}

// A model of a few tensors in two shards whose versions are checkpoints and disk deltas.
class DiskTrainer {
 public:
  explicit DiskTrainer(const std::string& root) : root_(root), source_(JoinPath(root, "source")) {
    tensors_ = {RandomTensor({"a.weight", Dtype::kBF16, {300, 1000}}, 1),
                RandomTensor({"b.weight", Dtype::kU8, {70000}}, 2),
                RandomTensor({"c.scale", Dtype::kF32, {}}, 3),
                RandomTensor({"d.empty", Dtype::kF16, {0, 4}}, 4),
                RandomTensor({"e.fixed", Dtype::kI64, {4097}}, 5)};
    SEGUE_CHECK(MakeDirectories(source_).ok());
    Write();
  }

  const std::string& source() const { return source_; }
  std::string Directory(std::uint64_t version) const {
    return JoinPath(root_, "v" + std::to_string(version));
  }
  std::string DeltaPath(std::uint64_t version) const { return DiskVersionPath(source_, version); }
  std::uint64_t version() const { return version_; }
  Plan MakePlan() const {
    return Plan::FromCheckpoint(Checkpoint::Open(Directory(0)).value()).value();
  }

  // The next version: a checkpoint, and a delta in the source. Changes about one byte in `every`
  // of the first three tensors; 0: none.
  void Step(std::uint64_t every = 500, DeltaEncoding encoding = DeltaEncoding::kXor,
            ChecksumKind checksum = ChecksumKind::kXxh3) {
    const std::vector<TestTensor> before = tensors_;
    Change(every);
    Write();
    DeltaIndex index;
    index.version = version_;
    index.base_version = version_ - 1;
    index.encoding = encoding;
    index.checksum = checksum;
    const Plan plan = MakePlan();
    DeltaWriter writer = DeltaWriter::Start(source_, index, 2, plan).value();
    DeltaFrameWriter frames;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (before[i].bytes == tensors_[i].bytes) continue;
      ByteVector old_bytes = before[i].bytes;
      const ByteSpan frame = frames.Make(encoding, old_bytes, tensors_[i].bytes).value();
      SEGUE_CHECK(writer.Add(i, frame, HashTensor(checksum, tensors_[i].bytes)).ok());
    }
    SEGUE_CHECK(writer.Finish().ok());
  }

  // The next version as a full checkpoint in the source.
  void StepFull(std::uint64_t every = 500) {
    Change(every);
    Write();
    std::filesystem::copy(Directory(version_), DeltaPath(version_));
  }

 private:
  void Change(std::uint64_t every) {
    ++version_;
    Random random(version_);
    for (std::size_t i = 0; i < 3 && every != 0; ++i) {
      ByteVector& bytes = tensors_[i].bytes;
      for (std::uint64_t n = 0; n < bytes.size() / every + 1; ++n) {
        bytes[random.Below(bytes.size())] ^= static_cast<std::byte>(1 + random.Below(255));
      }
    }
  }

  void Write() const {
    const std::string directory = Directory(version_);
    SEGUE_CHECK(MakeDirectories(directory).ok());
    WriteShardedCheckpoint(directory,
                           {{tensors_[3], tensors_[0]}, {tensors_[1], tensors_[2], tensors_[4]}});
    WriteFile(JoinPath(directory, "config.json"), "{}");
  }

  std::string root_;
  std::string source_;
  std::vector<TestTensor> tensors_;
  std::uint64_t version_ = 0;
};

// Weights and index of two checkpoints agree byte for byte, and no others are there.
inline bool SameWeights(const std::string& a, const std::string& b) {
  std::vector<std::pair<std::string, ByteVector>> files[2];
  for (const int side : {0, 1}) {
    const std::string& directory = side == 0 ? a : b;
    const auto names = ListDirectory(directory);
    if (!names.ok()) return false;
    for (const std::string& name : names.value()) {
      if (!name.ends_with(".safetensors") && name != kIndexFileName) continue;
      files[side].emplace_back(name, ReadFile(JoinPath(directory, name), 1u << 30).value());
    }
  }
  return files[0] == files[1];
}

}  // namespace segue::test
