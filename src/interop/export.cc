// SPDX-License-Identifier: Apache-2.0
//
// Export: versions of a lineage as directories of disk deltas. A checksum there is one of a whole
// tensor, so each tensor that a version changes is made from the base's bytes: by one delta that
// leads to the version before, and by the version's own. The model is never in memory.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/scratch_directory.h"
#include "base/threads.h"
#include "delta/applier.h"
#include "delta/compose.h"
#include "delta/encoder.h"
#include "interop/delta_writer.h"
#include "interop/disk_source.h"
#include "segue/disk_delta.h"
#include "store/signed_store.h"
#include "sync/fetch.h"
#include "sync/lineage.h"

namespace segue {
namespace {

// The rows of one tensor, as they are applied to a buffer.
Status ApplyRows(const Plan& plan, const StagedDelta& staged, std::size_t tensor,
                 MutableByteSpan bytes, Device& device) {
  const PlanTensor& place = plan.tensors()[tensor];
  const auto rows = staged.rows();
  const auto before = [](const ChunkRow& row, std::uint64_t chunk) { return row.chunk < chunk; };
  const auto begin = std::lower_bound(rows.begin(), rows.end(), place.first_chunk, before);
  const auto end =
      std::lower_bound(begin, rows.end(), place.first_chunk + place.chunk_count, before);
  std::vector<ChunkWork> work;
  work.reserve(static_cast<std::size_t>(end - begin));
  for (auto row = begin; row != end; ++row) {
    work.push_back(staged.Work(plan, static_cast<std::size_t>(row - rows.begin()),
                               bytes.data() + plan.Chunk(row->chunk).offset));
  }
  auto fault = device.Preflight(work);
  if (!fault) fault = device.Apply(work);
  if (!fault) return {};
  return Corruption(DescribeChunk(plan, begin[static_cast<std::ptrdiff_t>(fault->index)].chunk) +
                    ": the delta does not lead to what it states");
}

// Numbers of the tensors that have rows, ascending.
std::vector<std::uint32_t> ChangedTensors(const Plan& plan, const StagedDelta& staged) {
  std::vector<std::uint32_t> tensors;
  for (const ChunkRow& row : staged.rows()) {
    const std::uint32_t tensor = plan.Chunk(row.chunk).tensor;
    if (tensors.empty() || tensors.back() != tensor) tensors.push_back(tensor);
  }
  return tensors;
}

struct EncodedTensor {
  ByteVector frame;
  TensorChecksum checksum;
};

// Encodes one tensor at a time.
struct Worker {
  std::unique_ptr<Device> device;
  DeltaFrameWriter frames;
  ByteVector old_bytes;
  ByteVector new_bytes;
};

class Exporter {
 public:
  explicit Exporter(const ExportDeltaOptions& options) : options_(options) {}

  Result<ExportDeltaReport> Run() {
    SEGUE_RETURN_IF_ERROR(CheckOptions());
    SEGUE_RETURN_IF_ERROR(OpenAll());
    SEGUE_RETURN_IF_ERROR(FindChain());
    SEGUE_RETURN_IF_ERROR(ChooseNumbers());
    SEGUE_RETURN_IF_ERROR(MakeDirectories(options_.output));
    SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                           ScratchDirectory::Make("", "segue-export"));
    workers_.resize(ThreadCount(options_.threads));
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      const std::string folder = JoinPath(scratch.path(), std::to_string(i));
      SEGUE_RETURN_IF_ERROR(MakeDirectories(folder));
      SEGUE_RETURN_IF_ERROR(ExportVersion(i, folder));
      SEGUE_RETURN_IF_ERROR(RemoveTree(folder));
    }
    return report_;
  }

 private:
  Status CheckOptions() {
    const auto encoding = DeltaEncodingFromName(options_.encoding);
    if (!encoding) {
      return InvalidArgument("encoding '" + options_.encoding +
                             "' is not known; known are xor, overwrite");
    }
    const auto checksum = ChecksumKindFromName(options_.checksum);
    if (!checksum) {
      return InvalidArgument("checksum '" + options_.checksum +
                             "' is not known; known are xxh3-128, blake3, adler32");
    }
    if (options_.shards == 0 || options_.shards > limits::kDiskDeltaShardCountMax) {
      return InvalidArgument("a version is cut into 1 to " +
                             std::to_string(limits::kDiskDeltaShardCountMax) + " shards, not " +
                             std::to_string(options_.shards));
    }
    encoding_ = *encoding;
    checksum_ = *checksum;
    return {};
  }

  Status OpenAll() {
    SEGUE_ASSIGN_OR_RETURN(base_, Checkpoint::Open(options_.base));
    report_.warnings = base_.warnings();
    SEGUE_ASSIGN_OR_RETURN(auto store, OpenStore(options_.store, /*create=*/false));
    SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::Open(*store_, options_.lineage));
    SEGUE_ASSIGN_OR_RETURN(plan_, lineage_.ReadPlan(*store_));
    SEGUE_ASSIGN_OR_RETURN(const Plan found, Plan::FromCheckpoint(base_, plan_.chunk_size()));
    report_.lineage = options_.lineage;
    return ComparePlans(plan_, found, "lineage '" + options_.lineage + "'",
                        "base '" + options_.base + "'");
  }

  // Which version the base is, and the versions from there to the one asked for, each on the one
  // before.
  Status FindChain() {
    report_.to = options_.to.value_or(lineage_.newest());
    SEGUE_RETURN_IF_ERROR(lineage_.Require(report_.to).status());
    const Digest digest = DigestModel(plan_, ViewOf(base_), options_.threads);
    std::vector<std::uint64_t> starts = lineage_.FindVersions(digest, report_.to);
    if (options_.from) {
      const bool is_from = std::find(starts.begin(), starts.end(), *options_.from) != starts.end();
      if (!is_from) return NotTheBase(digest);
      starts = {*options_.from};
    }
    if (starts.empty()) return NotTheBase(digest);
    std::uint64_t version = report_.to;
    while (std::find(starts.begin(), starts.end(), version) == starts.end()) {
      const auto manifest = lineage_.manifests().find(version);
      if (manifest == lineage_.manifests().end()) return NoWay(starts.front(), version);
      chain_.push_back(manifest->second);
      version = manifest->second.identity.base_version;
    }
    std::reverse(chain_.begin(), chain_.end());
    report_.from = version;
    return {};
  }

  Status NotTheBase(const Digest& digest) const {
    const std::string expected = options_.from
                                     ? "not version " + std::to_string(*options_.from)
                                     : "which is no version up to " + std::to_string(report_.to);
    return VersionMismatch("base '" + options_.base + "' has digest " + digest.ToHex() + ", " +
                           expected + " of lineage '" + options_.lineage + "'");
  }

  // The chain of the target ends at `version`, which nothing leads to.
  Status NoWay(std::uint64_t from, std::uint64_t version) const {
    if (version > from) {
      return NotFound("version " + std::to_string(version) + " of lineage '" + options_.lineage +
                      "' is not there any more: no whole chain leads from version " +
                      std::to_string(from) + " to " + std::to_string(report_.to));
    }
    return VersionMismatch("version " + std::to_string(report_.to) + " of lineage '" +
                           options_.lineage + "' does not come from version " +
                           std::to_string(from) + ", which the base is");
  }

  // The directories' numbers; none may be there.
  Status ChooseNumbers() {
    std::uint64_t number = options_.first_number.value_or(report_.from + 1);
    for (const Manifest& manifest : chain_) {
      const std::uint64_t version = manifest.identity.target_version;
      if (!options_.first_number && version != number) {
        return InvalidArgument("version " + std::to_string(version) + " follows version " +
                               std::to_string(number - 1) +
                               ", and readers of disk deltas know no gaps: number the directories "
                               "anew (--first)");
      }
      if (number == 0 || number > limits::kDiskDeltaVersionMax) {
        return InvalidArgument("directories are numbered from 1 to " +
                               std::to_string(limits::kDiskDeltaVersionMax) + ", not " +
                               std::to_string(number));
      }
      const std::string path = DiskVersionPath(options_.output, number);
      if (FileExists(path)) {
        return InvalidArgument("'" + path + "' exists already; begin after it (--from)");
      }
      report_.versions.push_back({version, number++, path, 0, 0});
    }
    return {};
  }

  Status ExportVersion(std::size_t index, const std::string& folder) {
    if (options_.progress) options_.progress("export", index, chain_.size());
    ExportedDelta& exported = report_.versions[index];
    SEGUE_ASSIGN_OR_RETURN(FetchedDelta fetched, FetchChain(*store_, plan_, {chain_[index]}, folder,
                                                            options_.threads, {}));
    DeltaIndex head;
    head.version = exported.number;
    head.base_version = exported.number - 1;
    head.encoding = encoding_;
    head.checksum = checksum_;
    SEGUE_ASSIGN_OR_RETURN(DeltaWriter writer, DeltaWriter::Start(options_.output, std::move(head),
                                                                  options_.shards, plan_));
    const std::vector<std::uint32_t> tensors = ChangedTensors(plan_, fetched.staged);
    SEGUE_RETURN_IF_ERROR(ParallelOrdered<EncodedTensor>(
        tensors.size(), options_.threads,
        [&](std::size_t i, unsigned thread) {
          return Encode(tensors[i], fetched.staged, workers_[thread]);
        },
        [&](std::size_t i, const EncodedTensor& encoded) {
          return writer.Add(tensors[i], encoded.frame, encoded.checksum);
        }));
    SEGUE_ASSIGN_OR_RETURN(exported.bytes, writer.Finish());
    exported.changed_tensors = tensors.size();
    if (index + 1 == chain_.size()) return {};
    return Accumulate(std::move(fetched.staged), JoinPath(folder, "joined"));
  }

  Result<EncodedTensor> Encode(std::uint32_t tensor, const StagedDelta& staged, Worker& worker) {
    if (worker.device == nullptr) {
      worker.device = MakeHostDevice(1);
      worker.device->Reserve(plan_.chunk_size());
    }
    const ByteSpan base = base_.TensorBytes(tensor);
    worker.old_bytes.assign(base.begin(), base.end());
    SEGUE_RETURN_IF_ERROR(ApplyRows(plan_, before_, tensor, worker.old_bytes, *worker.device));
    worker.new_bytes = worker.old_bytes;
    SEGUE_RETURN_IF_ERROR(ApplyRows(plan_, staged, tensor, worker.new_bytes, *worker.device));
    EncodedTensor encoded;
    encoded.checksum = HashTensor(checksum_, worker.new_bytes);
    const auto frame = worker.frames.Make(encoding_, worker.old_bytes, worker.new_bytes);
    if (!frame.ok()) {
      return frame.status().WithContext("tensor '" + plan_.tensors()[tensor].spec.name + "'");
    }
    encoded.frame.assign(frame->begin(), frame->end());
    return encoded;
  }

  // What leads from the base to the version that was just written.
  Status Accumulate(StagedDelta staged, const std::string& path) {
    if (before_.rows().empty()) {
      before_ = std::move(staged);
      return {};
    }
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    SEGUE_ASSIGN_OR_RETURN(const PayloadSummary summary,
                           ComposeDeltas(plan_, before_, staged, Profile::kSparseZstd,
                                         [&](ByteSpan bytes) { return file.Append(bytes); }));
    SEGUE_RETURN_IF_ERROR(file.Close());
    before_ = StagedDelta();
    SEGUE_ASSIGN_OR_RETURN(before_,
                           StageFile(plan_, path, summary.size, summary.sha256, options_.threads));
    return {};
  }

  const ExportDeltaOptions& options_;
  DeltaEncoding encoding_ = DeltaEncoding::kXor;
  ChecksumKind checksum_ = ChecksumKind::kXxh3;
  Checkpoint base_;
  std::unique_ptr<Store> store_;
  Lineage lineage_;
  Plan plan_;
  std::vector<Manifest> chain_;
  StagedDelta before_;
  std::vector<Worker> workers_;
  ExportDeltaReport report_;
};

}  // namespace

Result<ExportDeltaReport> ExportDiskDelta(const ExportDeltaOptions& options) {
  return Exporter(options).Run();
}

}  // namespace segue
