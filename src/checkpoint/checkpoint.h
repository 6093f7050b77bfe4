// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: a directory (or one file) of safetensors shards, opened, validated and mapped. Which
// files belong to it follows from the index where there is one, never from a glob: strays are named
// in warnings() and left alone (cases B1, B3, B5).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"
#include "segue/status.h"

namespace segue {

// In a checkpoint directory while an apply in place is begun and not over (docs/protocol.md,
// section 4).
inline constexpr char kJournalRecordName[] = ".segue/apply/apply.json";
// The same while all its files are being replaced (section 14): the one is there, the other not.
inline constexpr char kResetRecordName[] = ".weight_sync/reset.json";
inline constexpr char kDiskStateName[] = ".weight_sync/state.json";

// One shard as it is on the disk.
struct Shard {
  std::string name;  // Single path component, e.g. "model-00001-of-00002.safetensors".
  std::string path;  // Directory and name.
  MappedFile file;
  ByteSpan header_json;                // With its padding, without the length word.
  std::uint64_t data_offset = 0;       // 8 + header size.
  std::vector<std::uint32_t> tensors;  // Numbers into Checkpoint::tensors(), ascending.
};

struct CheckpointTensor {
  TensorSpec spec;
  std::uint32_t shard = 0;        // Number into Checkpoint::shards().
  std::uint64_t file_offset = 0;  // From the start of the shard file.
  std::uint64_t size = 0;
};

class Checkpoint {
 public:
  // `path`: a directory, or a single .safetensors file. Writable maps the shards read-write; the
  // caller answers for links (see sync/). Errors name every missing file, or the tensor and the
  // fault. Tainted where an apply was interrupted: whatever reads weights refuses them by this.
  static Result<Checkpoint> Open(const std::string& path,
                                 MappedFile::Mode mode = MappedFile::Mode::kReadOnly);
  // The same without that refusal, for who resolves the apply or only looks at names and sizes.
  static Result<Checkpoint> OpenUnresolved(const std::string& path,
                                           MappedFile::Mode mode = MappedFile::Mode::kReadOnly);

  // In ascending order of the names' bytes: the plan's order.
  std::span<const CheckpointTensor> tensors() const { return tensors_; }
  // In ascending order of the names.
  std::span<Shard> shards() { return shards_; }
  std::span<const Shard> shards() const { return shards_; }
  ByteSpan TensorBytes(std::size_t tensor) const;
  // Empty unless opened writable.
  MutableByteSpan MutableTensorBytes(std::size_t tensor);
  // The index file's bytes; empty where there is none.
  ByteSpan index_json() const { return index_json_; }
  // The directory that holds the shards.
  const std::string& directory() const { return directory_; }
  // One sentence for each thing that was left aside (stray files).
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  static Result<Checkpoint> OpenDirectory(const std::string& directory,
                                          const std::vector<std::string>& names,
                                          MappedFile::Mode mode);
  // Opens the named shards of directory_; holds them against `index` unless that is null.
  Status Load(const std::vector<std::string>& shard_names, const IndexFile* index,
              MappedFile::Mode mode);

  std::string directory_;
  ByteVector index_json_;
  std::vector<Shard> shards_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace segue
