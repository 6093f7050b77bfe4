// SPDX-License-Identifier: Apache-2.0
//
// For tests of this folder and of those above it: temporary directories, safetensors files and
// sharded checkpoints from a few lines. A helper that fails ends the test program, as its test
// would be void.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"

namespace segue::test {

// A fresh directory under the system's temporary directory, removed with all it holds at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* root = std::getenv("TMPDIR");
    path_ = JoinPath(root == nullptr ? "/tmp" : root, "segue-test-XXXXXX");
    SEGUE_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryDirectory() { (void)RemoveTree(path_).ok(); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

// A tensor with its bytes, which must be as many as the spec says.
struct TestTensor {
  TensorSpec spec;
  ByteVector bytes;
};

inline ByteVector RandomBytes(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

// A tensor of the right size with pseudo-random bytes.
inline TestTensor RandomTensor(TensorSpec spec, std::uint64_t seed) {
  const std::uint64_t size = TensorSize(spec).value();
  return {std::move(spec), RandomBytes(seed, size)};
}

// Writes (or truncates) without syncing.
inline void WriteFile(const std::string& path, ByteSpan bytes) {
  OutputFile file = OutputFile::Create(path).value();
  SEGUE_CHECK(file.Append(bytes).ok());
  SEGUE_CHECK(file.Close().ok());
}
inline void WriteFile(const std::string& path, std::string_view text) {
  WriteFile(path, AsBytes(text));
}

// A whole safetensors file around a header text and data, both taken as they are.
inline ByteVector MakeSafetensorsFile(std::string_view header, ByteSpan data) {
  ByteVector file(8 + header.size() + data.size());
  StoreLittle(file.data(), static_cast<std::uint64_t>(header.size()));
  std::copy(AsBytes(header).begin(), AsBytes(header).end(), file.begin() + 8);
  std::copy(data.begin(), data.end(),
            file.begin() + 8 + static_cast<std::ptrdiff_t>(header.size()));
  return file;
}

// Tensors lie in the given order, header keys too.
inline void WriteSafetensors(const std::string& path, const std::vector<TestTensor>& tensors,
                             const std::map<std::string, std::string>& metadata = {}) {
  std::vector<SafetensorsEntry> entries;
  ByteVector data;
  for (const TestTensor& tensor : tensors) {
    SEGUE_CHECK(TensorSize(tensor.spec).value() == tensor.bytes.size());
    entries.push_back({tensor.spec, data.size(), tensor.bytes.size()});
    data.resize(data.size() + tensor.bytes.size());
    std::copy(tensor.bytes.begin(), tensor.bytes.end(),
              data.end() - static_cast<std::ptrdiff_t>(tensor.bytes.size()));
  }
  WriteFile(path, MakeSafetensorsFile(MakeSafetensorsHeader(entries, metadata), data));
}

// "model-00001-of-00002.safetensors" for shard 0 of 2.
inline std::string ShardName(std::size_t shard, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return name;
}

// Index text that maps the tensors of each shard to its name. Names must not need JSON escapes.
inline std::string MakeIndexJson(const std::vector<std::vector<TestTensor>>& shards) {
  std::string text = "{\n  \"metadata\": {\"total_size\": 0},\n  \"weight_map\": {";
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TestTensor& tensor : shards[i]) {
      if (text.back() != '{') text += ',';
      text += "\n    \"" + tensor.spec.name + "\": \"" + ShardName(i, shards.size()) + '"';
    }
  }
  return text + "\n  }\n}\n";
}

// Shards "model-0000k-of-0000n.safetensors" and their index, in an existing directory.
inline void WriteShardedCheckpoint(const std::string& directory,
                                   const std::vector<std::vector<TestTensor>>& shards,
                                   const std::map<std::string, std::string>& metadata = {}) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    WriteSafetensors(JoinPath(directory, ShardName(i, shards.size())), shards[i], metadata);
  }
  WriteFile(JoinPath(directory, kIndexFileName), MakeIndexJson(shards));
}

}  // namespace segue::test
