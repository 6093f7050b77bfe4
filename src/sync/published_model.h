// SPDX-License-Identifier: Apache-2.0
//
// Published model: what a publisher is opened with and holds from then on. Its store, the lineage
// as it was last read, the model's plan and layout, the tensors that are this owner's, and their
// bytes in the last durable version, the baseline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/tensor_set.h"
#include "segue/publisher.h"
#include "segue/status.h"
#include "store/store.h"
#include "sync/baseline.h"
#include "sync/environment.h"
#include "sync/lineage.h"

namespace segue {

struct PublishedModel {
  std::string lineage_name;
  std::unique_ptr<Store> store;
  std::optional<Lineage> lineage;  // Nothing where the store has none yet.
  Plan plan;
  Layout layout;  // For a new lineage.
  TensorSet owned;
  BaselinePlace place;
  std::unique_ptr<Baseline> baseline;
  std::optional<std::uint64_t> version;  // Of the baseline, where it is known.

  // As it is now. InvalidArgument where it is another model's.
  Status ReadLineage();
  // The version that has this digest. VersionMismatch, naming `what`, where there is none.
  Status FindVersion(const Digest& digest, const std::string& what);
  // Memory of the device that the publisher was opened for, where it was opened for one.
  Status CheckPlace(std::string_view name, const std::byte* data, std::uint64_t size) const;
};

// The three ways of Publisher::Open().
Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(Environment& environment,
                                                           const PublisherOptions& options,
                                                           std::span<const SourceTensor> base);
Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(Environment& environment,
                                                           const PublisherOptions& options,
                                                           std::span<const SourceTensor> base,
                                                           std::span<const std::string> owned,
                                                           const TensorReader& read);
Result<std::unique_ptr<PublishedModel>> OpenPublishedModel(
    Environment& environment, const PublisherOptions& options, const std::string& checkpoint,
    const std::optional<std::vector<std::string>>& owned);

}  // namespace segue
