// SPDX-License-Identifier: Apache-2.0
//
// Writer: versions of a model as sharded safetensors checkpoints whose tensors are written piece by
// piece, in any order and from any thread. All versions share one layout, so it is made once: which
// tensor lies where, the headers and the index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "checkpoint/tensor.h"
#include "segue/status.h"

namespace segue::workload {

class ShardLayout {
 public:
  // Tensors go to at most `shard_count` shards of about equal size, in the given order.
  static Result<ShardLayout> Make(const std::vector<TensorSpec>& specs, unsigned shard_count);

  struct Place {
    std::size_t shard = 0;
    std::uint64_t offset = 0;  // From the start of the file.
    std::uint64_t size = 0;
  };
  // Of the tensor at `index` in the order given to Make.
  const Place& place(std::size_t index) const { return places_[index]; }
  std::size_t shard_count() const { return headers_.size(); }
  std::string ShardName(std::size_t shard) const;
  // The file up to the data section.
  ByteSpan header(std::size_t shard) const { return headers_[shard]; }
  const std::string& index_json() const { return index_json_; }
  std::uint64_t total_size() const { return total_size_; }

 private:
  Status MakeHeaders(const std::vector<TensorSpec>& specs);
  void MakeIndex(const std::vector<TensorSpec>& specs);

  std::vector<Place> places_;
  std::vector<ByteVector> headers_;
  std::string index_json_;
  std::uint64_t total_size_ = 0;
};

// One version being written. Write may be called from several threads.
class VersionWriter {
 public:
  // Creates `directory` and its shards with their headers. `layout` must outlive the writer.
  static Result<VersionWriter> Create(const ShardLayout& layout, const std::string& directory);

  // Writes `bytes` at `offset` of the tensor at `index`.
  Status Write(std::size_t index, std::uint64_t offset, ByteSpan bytes);
  // Writes the index, last, so that a version without one is known to be unfinished.
  Status Close();

 private:
  const ShardLayout* layout_ = nullptr;
  std::string directory_;
  std::vector<OutputFile> files_;
};

}  // namespace segue::workload
