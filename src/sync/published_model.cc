// SPDX-License-Identifier: Apache-2.0
//
// Opening: the store first, as a lineage that is there says in which chunks the model is cut; then
// the model's plan; then its bytes. Tested with the publisher (publisher_test.cc).
#include "sync/published_model.h"

#include <utility>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "store/signed_store.h"
#include "sync/source_model.h"

namespace segue {
namespace {

class Opening {
 public:
  explicit Opening(const PublisherOptions& options)
      : options_(options), model_(std::make_unique<PublishedModel>()) {
    model_->lineage_name = options.lineage;
  }

  // Returns the size of the model's chunks.
  Result<std::uint64_t> OpenStore(Environment& environment) {
    SEGUE_ASSIGN_OR_RETURN(auto store, environment.OpenStore(options_.store, /*create=*/true));
    SEGUE_ASSIGN_OR_RETURN(model_->store, WithWriterKeys(std::move(store), options_.keys));
    SEGUE_ASSIGN_OR_RETURN(model_->lineage, Lineage::OpenIfThere(*model_->store, options_.lineage));
    std::uint64_t chunk_size = options_.chunk_size.value_or(limits::kChunkSizeDefault);
    if (model_->lineage) {
      SEGUE_ASSIGN_OR_RETURN(const Plan known, model_->lineage->ReadPlan(*model_->store));
      chunk_size = known.chunk_size();
    }
    SEGUE_RETURN_IF_ERROR(OpenDevice(chunk_size));
    return chunk_size;
  }

  const PublishedModel& model() const { return *model_; }

  // `name`: what has the bytes. `read`: where they do not lie in the source's view.
  Result<std::unique_ptr<PublishedModel>> Finish(SourceModel source, Layout layout,
                                                 const std::string& name,
                                                 const TensorReader& read = {}) {
    model_->plan = std::move(source.plan);
    model_->owned = std::move(source.owned);
    model_->layout = std::move(layout);
    if (model_->lineage) {
      SEGUE_RETURN_IF_ERROR(model_->lineage->CheckPlan(*model_->store, model_->plan, name));
    }
    if (options_.owner_count == 1) SEGUE_RETURN_IF_ERROR(CheckAllOwned());
    SEGUE_ASSIGN_OR_RETURN(model_->baseline, MakeBaseline(source.view, read));
    if (model_->lineage && options_.owner_count == 1) {
      SEGUE_RETURN_IF_ERROR(model_->FindVersion(model_->baseline->digest(), name));
    }
    return std::move(model_);
  }

 private:
  Status OpenDevice(std::uint64_t chunk_size) {
    if (options_.device.empty()) return {};
    Result<std::shared_ptr<Differ>> differ = OpenDiffer(
        options_.device, {.chunk_size_max = chunk_size, .memory_max = options_.device_memory});
    if (!differ.ok() && differ.status().code() == StatusCode::kResourceExhausted) {
      return differ.status().WithContext("memory to compare in, which device_memory bounds");
    }
    SEGUE_RETURN_IF_ERROR(differ.status());
    model_->place.differ = std::move(differ).value();
    if (options_.baseline_on_host) return {};
    SEGUE_ASSIGN_OR_RETURN(
        model_->place.accelerator,
        OpenAccelerator(options_.device, options_.threads, {.keep_batch = false}));
    return {};
  }

  Status CheckAllOwned() const {
    const auto missing = model_->owned.FirstMissing(model_->plan);
    if (!missing) return {};
    return InvalidArgument("tensor '" + model_->plan.tensors()[*missing].spec.name +
                           "' has no bytes, and there is no other owner");
  }

  Result<std::unique_ptr<Baseline>> MakeBaseline(const ModelView& view,
                                                 const TensorReader& read) const {
    const PublishedModel& model = *model_;
    if (!read) return Baseline::Copy(model.plan, model.owned, view, options_.threads, model.place);
    const auto read_tensor = [&](std::size_t tensor, std::byte* to) {
      const PlanTensor& known = model.plan.tensors()[tensor];
      return read(known.spec.name, to, known.size);
    };
    return Baseline::Read(model.plan, model.owned, read_tensor, options_.threads, model.place);
  }

  const PublisherOptions& options_;
  std::unique_ptr<PublishedModel> model_;
};

}  // namespace

Status PublishedModel::ReadLineage() {
  SEGUE_ASSIGN_OR_RETURN(lineage, Lineage::OpenIfThere(*store, lineage_name));
  return lineage ? lineage->CheckPlan(*store, plan, "the publisher's tensors") : Status();
}

Status PublishedModel::FindVersion(const Digest& digest, const std::string& what) {
  version = lineage->FindVersion(digest, limits::kVersionMax);
  if (version) return {};
  return VersionMismatch(what + " have digest " + digest.ToHex() +
                         ", which is no version of lineage '" + lineage_name + "'");
}

Status PublishedModel::CheckPlace(std::string_view name, const std::byte* data,
                                  std::uint64_t size) const {
  if (place.differ == nullptr || data == nullptr || size == 0) return {};
  return place.differ->CheckMemory(data, size).WithContext("tensor " + Quoted(name));
}

Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(Environment& environment,
                                                           const PublisherOptions& options,
                                                           std::span<const SourceTensor> base) {
  Opening opening(options);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, opening.OpenStore(environment));
  SEGUE_ASSIGN_OR_RETURN(SourceModel source, SourceFromTensors(base, chunk_size));
  for (const SourceTensor& tensor : base) {
    SEGUE_RETURN_IF_ERROR(opening.model().CheckPlace(tensor.name, tensor.data, tensor.size));
  }
  SEGUE_ASSIGN_OR_RETURN(Layout layout, Layout::Generate(source.plan, options.shard_size));
  return opening.Finish(std::move(source), std::move(layout), "the publisher's tensors");
}

Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(Environment& environment,
                                                           const PublisherOptions& options,
                                                           std::span<const SourceTensor> base,
                                                           std::span<const std::string> owned,
                                                           const TensorReader& read) {
  Opening opening(options);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, opening.OpenStore(environment));
  SEGUE_ASSIGN_OR_RETURN(SourceModel source, SourceFromSpecs(base, owned, chunk_size));
  SEGUE_ASSIGN_OR_RETURN(Layout layout, Layout::Generate(source.plan, options.shard_size));
  return opening.Finish(std::move(source), std::move(layout), "the publisher's tensors", read);
}

Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(
    Environment& environment, const PublisherOptions& options, const std::string& checkpoint,
    const std::optional<std::vector<std::string>>& owned) {
  Opening opening(options);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, opening.OpenStore(environment));
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint file, Checkpoint::Open(checkpoint));
  SEGUE_ASSIGN_OR_RETURN(SourceModel source, SourceFromCheckpoint(file, owned, chunk_size));
  return opening.Finish(std::move(source), Layout::FromCheckpoint(file),
                        "checkpoint '" + checkpoint + "'");
}

}  // namespace segue
