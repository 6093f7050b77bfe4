// SPDX-License-Identifier: Apache-2.0
//
// Publisher: makes versions from a trainer's buffers, without checkpoint files. It keeps a copy of
// the last durable version (the baseline) and compares each tensor with it as it is put.
//
//   auto publisher = Publisher::Open({.store = "dir:/mnt/run7"}, tensors);
//   for (;;) {
//     TrainStep();
//     publisher.value()->Begin();
//     for (const SourceTensor& t : tensors) publisher.value()->Put(t.name, t.data, t.size);
//     const auto report = publisher.value()->Commit();   // On failure the baseline stays.
//   }
//
// docs/protocol.md, section 2, "Publishing from buffers", says what is promised.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "segue/keys.h"
#include "segue/publish.h"
#include "segue/status.h"

namespace segue {

// A tensor of the trainer's.
struct SourceTensor {
  std::string name = {};
  std::string dtype = {};  // As in safetensors, e.g. "BF16".
  std::vector<std::uint64_t> shape = {};
  // Null: another owner has it. On PublisherOptions::device, where that is given.
  const std::byte* data = nullptr;
  std::uint64_t size = 0;  // Bytes; must be those of dtype and shape where data is given.
};

// A version of some lineage. Two lineages may have one name (runs that were each given the default,
// say): only the digest tells their versions apart.
struct HeldVersion {
  std::uint64_t version = 0;
  std::string digest = {};  // 32 hexadecimal digits.
  bool operator==(const HeldVersion&) const = default;
};
// What an engine says that it serves.
struct EngineHolds {
  bool ready = false;  // The weights are those versions, proven, and the engine may use them.
  std::map<std::string, HeldVersion> lineages = {};
};
// Asks the engine of this name (a URL, say). Returns within seconds.
using EngineProbe = std::function<Result<EngineHolds>(const std::string& engine)>;

// Writes the bytes of the tensor of this name, all `size` of them, at `to`.
using TensorReader =
    std::function<Status(const std::string& name, std::byte* to, std::uint64_t size)>;

// Engines that must have a version before the publisher goes on.
struct Cohort {
  std::vector<std::string> engines = {};
  EngineProbe probe = {};
  std::chrono::milliseconds timeout{60'000};
  std::chrono::milliseconds interval{100};
};

struct PublisherOptions {
  std::string store = {};
  std::string lineage = "default";
  std::string profile = "sparse-zstd";
  std::optional<std::uint64_t> chunk_size = {};  // For a new lineage; by default 1 MiB.
  std::uint64_t shard_size = 5'000'000'000;      // For the files of a new lineage.
  bool allow_branch = false;                     // As in PublishOptions.
  unsigned threads = 0;                          // 0: every core.
  // The device in whose memory the tensors lie that the publisher is opened with and that are put:
  // "cuda:0", "cuda:1", ... as the CUDA driver counts (docs/cuda.md). Empty: addresses of this
  // process. Each call waits for all that this process has launched on the device.
  std::string device = {};
  // The baseline lies on the device, or in memory of the host that the device reads.
  bool baseline_on_host = false;
  std::uint64_t device_memory = 256 << 20;  // Bytes of the device for comparing, at most.
  std::uint32_t owner = 0;
  std::uint32_t owner_count = 1;
  std::string session = {};  // Shared by several owners, new for each start of the job.
  double owner_timeout_seconds = 600;
  std::uint64_t retain = 0;
  std::vector<AnchorWish> anchors = {};  // As in PublishOptions.
  // Tensors that were not put count as unchanged.
  bool missing_is_unchanged = false;
  // With engines: the baseline moves only once all of them have the version.
  Cohort cohort = {};
  KeyFiles keys = {};
};

// Digests of a version that is begun: of this owner's tensors, or of all owners' together. 32
// hexadecimal digits; those of the whole are the sums of those of the owners (AddDigests).
struct VersionDigests {
  std::string base = {};
  std::string target = {};
};
// The digest of tensors that have these digests. InvalidArgument for what is none.
Result<std::string> AddDigests(std::span<const std::string> digests);

// One thread at a time calls it; it uses several itself.
class Publisher {
 public:
  // `base`: every tensor of the model with the bytes of some version, in any order; those of other
  // owners without bytes. They are copied. VersionMismatch where the lineage is there and the bytes
  // are none of its versions (known at once for one owner, else at the first commit).
  static Result<std::unique_ptr<Publisher>> Open(const PublisherOptions& options,
                                                 std::span<const SourceTensor> base);
  // The same from tensors that are never in memory all at once: `base` says what they are, and
  // `read`, which writes to memory of the host, is called for each of `owned` that has bytes, one
  // after the other in the order of the names' bytes. What it fails with is returned.
  static Result<std::unique_ptr<Publisher>> Open(const PublisherOptions& options,
                                                 std::span<const SourceTensor> base,
                                                 std::span<const std::string> owned,
                                                 const TensorReader& read);
  // The same from a checkpoint, which is read once. `owned`: names; nothing for all.
  static Result<std::unique_ptr<Publisher>> Open(
      const PublisherOptions& options, const std::string& checkpoint,
      const std::optional<std::vector<std::string>>& owned = {});
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Several owners name the version. Unavailable while the fate of the version before is not known
  // or its cohort is behind.
  Status Begin(std::optional<std::uint64_t> version = {});
  // Reads `size` bytes at `data` and needs them no longer. InvalidArgument, with the version still
  // begun, for a tensor that is unknown, not owned, of another size or there already.
  Status Put(std::string_view name, const std::byte* data, std::uint64_t size);
  // The same for a tensor whose dtype and shape are known: they must be those of the model too, as
  // other ones may have the same size (case C4).
  Status Put(const SourceTensor& tensor);
  // The same for several, compared on all threads at once. One that is refused discards the
  // version.
  Status Put(std::span<const SourceTensor> tensors);
  Status PutUnchanged(std::string_view name);
  // Several owners that can speak to each other, before they commit: what each has adds up to what
  // all of them settle on, so that all refuse a version that none can make, or all know that it is
  // there already. Digests(): of this owner's tensors; where one is missing as Commit. Settle():
  // the sums over all owners. A failure leaves the version begun.
  Result<VersionDigests> Digests();
  Status Settle(const VersionDigests& whole);
  // The same for what they are opened with. VersionMismatch where the lineage is there and the sum
  // of all owners' digests, `whole`, is that of none of its versions. From here on version() is
  // known, as it is for a single owner.
  std::string BaselineDigest() const;
  Status SettleBaseline(const std::string& whole);
  // Several owners: makes this one's payload durable, so that they can agree that all have done it
  // before any of them commits, which then is a matter of records. A failure discards the version;
  // but where a tensor is missing it stays begun.
  Status Upload();
  // Ends the version that is begun, whatever comes of it; but where a tensor is missing it stays
  // begun.
  Result<PublishReport> Commit();
  void Discard();

  // Begin, Put of each tensor that has data (with its dtype and shape), Commit; compared on all
  // threads at once. Where a tensor is refused nothing stays begun.
  Result<PublishReport> Publish(std::span<const SourceTensor> tensors,
                                std::optional<std::uint64_t> version = {});

  // Waits until every engine has the baseline's version or a later one of this lineage, by their
  // digests. Unavailable, naming the others, when they have not in `cohort.timeout`.
  Status WaitForAcknowledgement(const Cohort& cohort) const;
  // Moves the baseline to a version that is published, though its cohort is behind.
  Status MoveBaseline();

  // Of the baseline; nothing where no version is known to have these bytes yet.
  std::optional<std::uint64_t> version() const;
  // Bytes of the baseline in memory.
  std::uint64_t baseline_bytes() const;
  // The tensor's bytes in the baseline, good until it moves (Commit, MoveBaseline, Begin).
  // NotFound; InvalidArgument for another owner's; Unsupported where it lies on a device.
  Result<std::span<const std::byte>> BaselineOf(std::string_view name) const;

 private:
  class Impl;
  friend struct PublisherInternals;
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
