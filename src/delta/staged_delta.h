// SPDX-License-Identifier: Apache-2.0
//
// Staged delta: the payloads of one version with the outer codec undone, held in memory so that
// applying needs no file, no network and no allocation. Staging memory is the inner bytes and a
// fixed allowance for each row, never the model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "delta/manifest.h"
#include "delta/model_view.h"
#include "delta/payload_table.h"
#include "device/device.h"
#include "segue/status.h"

namespace segue {

class StagedDelta {
 public:
  // Checks size and hash of one payload object against its entry in the manifest.
  static Status VerifyPayload(const PayloadEntry& entry, ByteSpan payload);

  // Undoes the outer codec of all payloads of a version and checks every row. The payloads may be
  // released afterwards. Corruption with the reason; nothing is kept on failure.
  static Result<StagedDelta> Stage(const Plan& plan, std::span<const ByteSpan> payloads,
                                   unsigned threads);

  // Adds a group of rows whose streams are at hand uncompressed; they are copied. After the last
  // one call SortRows().
  void AddGroup(const Plan& plan, std::span<const ChunkRow> rows,
                std::span<const ByteVector, kStreamCount> streams);
  // Payloads of several owners, and groups of several tensors, interleave. Corruption where a chunk
  // is in two.
  Status SortRows();

  // In ascending order of chunk numbers.
  std::span<const ChunkRow> rows() const { return rows_; }
  // The row's part of each stream of its group.
  std::array<ByteSpan, kStreamCount> Parts(const Plan& plan, std::size_t row) const;
  // The row as a device takes it.
  ChunkWork Work(const Plan& plan, std::size_t row, std::byte* live) const;
  // Every row, on the weights that `live` shows.
  std::vector<ChunkWork> AllWork(const Plan& plan, const MutableModelView& live) const;

  std::uint64_t staged_bytes() const { return staged_bytes_; }
  std::uint64_t changed_elements() const;
  // Sum of after - before over the rows.
  Digest difference() const;

 private:
  using PartPointers = std::array<const std::byte*, kStreamCount>;

  Status StagePayload(const Plan& plan, ByteSpan payload, unsigned threads);
  void PlaceRows(const Plan& plan, const PayloadTable& table,
                 const std::vector<const std::byte*>& frames);
  Status CheckRows(const Plan& plan, unsigned threads) const;

  std::vector<ChunkRow> rows_;
  std::vector<PartPointers> parts_;
  std::vector<std::unique_ptr<std::byte[]>> frames_;
  std::uint64_t staged_bytes_ = 0;
};

}  // namespace segue
