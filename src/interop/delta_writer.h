// SPDX-License-Identifier: Apache-2.0
//
// Delta writer: one version's directory, under another name until it is whole and durable
// (docs/format.md, section 10).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/scratch_directory.h"
#include "checkpoint/plan.h"
#include "checkpoint/safetensors.h"
#include "interop/delta_index.h"
#include "segue/status.h"

namespace segue {

class DeltaWriter {
 public:
  // Below `output`, which is there. `index`: everything but the map. `plan` outlives it.
  static Result<DeltaWriter> Start(const std::string& output, DeltaIndex index,
                                   std::uint64_t shard_count, const Plan& plan);

  // Tensors in the plan's order, each once.
  Status Add(std::size_t tensor, ByteSpan frame, const TensorChecksum& checksum);
  // Gives the directory its name, over nothing. The bytes of its files.
  Result<std::uint64_t> Finish();

 private:
  DeltaWriter(ScratchDirectory scratch, const std::string& output, DeltaIndex index,
              std::uint64_t shard_count, const Plan& plan);
  std::string ShardName(std::uint64_t number) const;
  std::uint64_t ShardOf(std::size_t tensor) const;
  Status StartShard(std::uint64_t number);
  Status EndShard();
  Status WriteWhole(const std::string& name, ByteSpan head, ByteSpan rest);

  ScratchDirectory scratch_;
  std::string output_;
  std::string directory_;  // In scratch_.
  DeltaIndex index_;
  std::uint64_t shard_count_;
  const Plan* plan_;
  // The shard that is being filled: its number, frames so far, and what its header will say.
  std::optional<std::uint64_t> shard_;
  OutputFile data_;
  std::uint64_t data_size_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> checksums_;
  std::uint64_t bytes_ = 0;
};

}  // namespace segue
