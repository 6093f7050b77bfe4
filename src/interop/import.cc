// SPDX-License-Identifier: Apache-2.0
//
// Import: directories of disk deltas as versions of a lineage, through the publisher of buffers.
// Its baseline is what a diff is applied to, and moves with each version that is published.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "interop/delta_chain.h"
#include "interop/disk_source.h"
#include "segue/disk_delta.h"
#include "segue/publisher.h"

namespace segue {
namespace {

PublisherOptions PublisherOptionsOf(const ImportDeltaOptions& options) {
  PublisherOptions publisher;
  publisher.store = options.store;
  publisher.lineage = options.lineage;
  publisher.profile = options.profile;
  publisher.chunk_size = options.chunk_size;
  publisher.threads = options.threads;
  publisher.missing_is_unchanged = true;
  publisher.keys = options.keys;
  return publisher;
}

class Importer {
 public:
  explicit Importer(const ImportDeltaOptions& options) : options_(options) {}

  Result<ImportDeltaReport> Run() {
    SEGUE_RETURN_IF_ERROR(ChooseVersions());
    {
      SEGUE_ASSIGN_OR_RETURN(const Checkpoint base, Checkpoint::Open(options_.base));
      report_.warnings = base.warnings();
      SEGUE_ASSIGN_OR_RETURN(plan_, Plan::FromCheckpoint(base));
    }
    SEGUE_ASSIGN_OR_RETURN(publisher_,
                           Publisher::Open(PublisherOptionsOf(options_), options_.base));
    for (std::uint64_t version = report_.from + 1; version <= to_; ++version) {
      if (options_.progress)
        options_.progress("import", version - report_.from - 1, to_ - report_.from);
      const Status status = Import(version);
      if (!status.ok()) return status.WithContext("version " + std::to_string(version));
    }
    return std::move(report_);
  }

 private:
  Status ChooseVersions() {
    SEGUE_ASSIGN_OR_RETURN(const auto numbers, ListDiskVersions(options_.source));
    const auto first = std::find_if(numbers.begin(), numbers.end(),
                                    [](std::uint64_t number) { return number > 0; });
    if (first == numbers.end()) {
      return NotFound("'" + options_.source + "' holds no version: no directory weight_vNNNNNN");
    }
    report_.lineage = options_.lineage;
    report_.from = options_.from.value_or(*first - 1);
    to_ = options_.to.value_or(numbers.back());
    if (to_ > report_.from && to_ <= limits::kDiskDeltaVersionMax) return {};
    return InvalidArgument("versions after " + std::to_string(report_.from) + " up to " +
                           std::to_string(to_) + ": there are none");
  }

  Status Import(std::uint64_t version) {
    const std::string path = DiskVersionPath(options_.source, version);
    SEGUE_ASSIGN_OR_RETURN(const bool is_delta, IsDeltaDirectory(path));
    SEGUE_RETURN_IF_ERROR(publisher_->Begin(version));
    Status put = is_delta ? PutDelta(version) : PutFull(path);
    if (!put.ok()) {
      publisher_->Discard();
      return put;
    }
    SEGUE_ASSIGN_OR_RETURN(const PublishReport published, publisher_->Commit());
    report_.warnings.insert(report_.warnings.end(), published.warnings.begin(),
                            published.warnings.end());
    report_.versions.push_back({published.target_version, !is_delta, published.already_published,
                                published.changed_elements, published.payload_bytes,
                                published.target_digest});
    return {};
  }

  Status PutDelta(std::uint64_t version) {
    SEGUE_ASSIGN_OR_RETURN(const DeltaChain chain,
                           DeltaChain::Open(options_.source, version, version, plan_));
    const auto base = [&](std::size_t tensor) {
      return publisher_->BaselineOf(plan_.tensors()[tensor].spec.name).value();
    };
    return FoldAll(chain, options_.threads, base, [&](std::span<const FoldedTensor> tensors) {
      for (const FoldedTensor& folded : tensors) {
        SEGUE_RETURN_IF_ERROR(publisher_->Put(plan_.tensors()[folded.tensor].spec.name,
                                              folded.bytes.data(), folded.bytes.size()));
      }
      return Status();
    });
  }

  // Its difference from the version before.
  Status PutFull(const std::string& path) {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint full, Checkpoint::Open(path));
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(full));
    const Status same = ComparePlans(plan_, plan, "base '" + options_.base + "'", "'" + path + "'");
    if (!same.ok()) {
      return Status(same.code(), same.message() +
                                     "; a model of another form is a lineage of its own, with "
                                     "that directory as its base");
    }
    for (std::size_t i = 0; i < full.tensors().size(); ++i) {
      const ByteSpan bytes = full.TensorBytes(i);
      SEGUE_RETURN_IF_ERROR(
          publisher_->Put(full.tensors()[i].spec.name, bytes.data(), bytes.size()));
    }
    return {};
  }

  const ImportDeltaOptions& options_;
  std::uint64_t to_ = 0;
  Plan plan_;
  std::unique_ptr<Publisher> publisher_;
  ImportDeltaReport report_;
};

}  // namespace

Result<ImportDeltaReport> ImportDiskDelta(const ImportDeltaOptions& options) {
  return Importer(options).Run();
}

}  // namespace segue
