// SPDX-License-Identifier: Apache-2.0
//
// Applier: brings one staged delta into live weights. Preflight proves that the live bytes are the
// base and writes nothing; Apply is the point of no return and proves the result. Everything that
// Apply needs is made in the constructor, so that the pause holds nothing else.
//
// Where a chunk lies in memory as it is, its own digests prove it. Parts of chunks prove nothing
// alone: their sums are added up, over the parts here and over the ranks (docs/protocol.md, "Views
// and ranks").
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/live_map.h"
#include "delta/rank_sums.h"
#include "delta/staged_delta.h"
#include "device/device.h"
#include "segue/status.h"

namespace segue {

class Applier {
 public:
  // All must outlive the applier.
  Applier(const Plan& plan, const StagedDelta& staged, const LiveMap& live, Device& device)
      : Applier(plan, staged, nullptr, &live, device) {}
  // For tensors that lie as they are.
  Applier(const Plan& plan, const StagedDelta& staged, const MutableModelView& live, Device& device)
      : Applier(plan, staged, std::make_unique<const LiveMap>(LiveMap::Whole(plan, live)), nullptr,
                device) {}

  // VersionMismatch: the live bytes are not the base. Corruption: the payload does not lead to the
  // target that it states. InvalidArgument: tied tensors become different. They name tensor and
  // chunk.
  Status Preflight() { return PreflightOn(device_); }
  // The same on another device of the same memory, one of fewer threads. Reserve()d by the caller.
  Status PreflightOn(Device& device);
  // After a preflight: what the parts here add to the proof (first: digest of scanned base bytes,
  // second: difference, number: `touched`), and whether sums of all ranks prove the rest.
  const RankSums& sums() const { return sums_; }
  Status CheckSums(const RankSums& sums) const;
  // By how much Apply() moves the digest of all bytes here.
  const Digest& difference() const { return difference_; }

  // Tainted on any fault: live bytes may be mixed and must be resolved or rebuilt.
  Status Apply();

  std::span<const ChunkWork> work() const { return work_; }
  ~Applier() { device_.Unload(); }
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

 private:
  // What a piece of work is a part of.
  struct Origin {
    std::size_t row = 0;
    const LiveMap::Part* part = nullptr;
  };

  Applier(const Plan& plan, const StagedDelta& staged, std::unique_ptr<const LiveMap> owned,
          const LiveMap* live, Device& device);

  void AddWork(bool tied);
  void AddPart(std::size_t row, const LiveMap::Part& part);
  PartValues ValuesOf(std::size_t work) const;
  PartValues ValuesOfRow(std::size_t row) const;
  Status AddUp();
  Status CheckRow(std::size_t row, const PartValues& found) const;
  Status Describe(const ChunkFault& fault) const;
  Status DescribeApplied(const ChunkFault& fault) const;

  const Plan& plan_;
  const StagedDelta& staged_;
  const std::unique_ptr<const LiveMap> owned_;
  const LiveMap& live_;
  Device& device_;
  // What is applied, then what is tied to it and only proven.
  std::vector<ChunkWork> work_;
  std::vector<Origin> origins_;
  std::size_t apply_count_ = 0;
  std::vector<PartSums> parts_;  // Of the work with a view.
  RankSums sums_;
  Digest difference_;
};

// "tensor 'w' chunk 3": for messages about a chunk number.
std::string DescribeChunk(const Plan& plan, std::uint64_t chunk);

}  // namespace segue
