// SPDX-License-Identifier: Apache-2.0
//
// Generate (segue/generate.h): a chain of checkpoints on the disk. The simulation yields pieces of
// all versions side by side; here they find their place in the files.
#include "segue/generate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "workload/simulation.h"
#include "workload/writer.h"

namespace segue {
namespace {

using workload::Piece;
using workload::Simulation;

// Versions are written side by side. Past this many open files the chain is cut into stretches, and
// each stretch follows the masters from version 0 again, which costs time alone.
constexpr unsigned kOpenFilesMax = 256;

std::string VersionName(unsigned version) {
  char name[16];
  std::snprintf(name, sizeof(name), "v%010u", version);
  return name;
}

Status CheckOptions(const GenerateOptions& options) {
  if (options.directory.empty()) return InvalidArgument("generate: no directory given");
  if (options.shard_count == 0) return InvalidArgument("generate: shard_count must be at least 1");
  const std::string first = JoinPath(options.directory, VersionName(0));
  if (FileExists(first)) {
    return InvalidArgument("'" + first + "' exists; generate writes into a new directory");
  }
  return {};
}

// `bytes`: of one version. Before memory is taken for it.
Status CheckSize(const GenerateOptions& options, std::uint64_t bytes) {
  if (bytes > limits::kGenerateSizeMax) {
    return ResourceExhausted("generate: a checkpoint of " + std::to_string(bytes) +
                             " bytes is over the limit of " +
                             std::to_string(limits::kGenerateSizeMax));
  }
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t free, FreeSpace(options.directory));
  const std::uint64_t versions = std::uint64_t{options.steps} + 1;
  if (bytes <= free / versions) return {};
  return ResourceExhausted("generate: " + std::to_string(versions) + " versions of " +
                           std::to_string(bytes) + " bytes are more than the " +
                           std::to_string(free) + " bytes that are free for '" + options.directory +
                           "'");
}

// What is stored for the tensors, one after the other, and where each tensor's part of it begins.
struct Stored {
  std::vector<TensorSpec> specs;
  std::vector<std::size_t> first;
};

Stored ListStored(const std::vector<workload::ModelTensor>& tensors) {
  Stored stored;
  for (const workload::ModelTensor& tensor : tensors) {
    stored.first.push_back(stored.specs.size());
    for (TensorSpec& spec : workload::StoredSpecs(tensor)) stored.specs.push_back(std::move(spec));
  }
  return stored;
}

// Writes versions `first` to `last`.
Status WriteVersions(const workload::ShardLayout& layout, const Stored& stored,
                     const std::vector<std::string>& directories, unsigned first, unsigned last,
                     unsigned threads, Simulation& simulation) {
  std::vector<workload::VersionWriter> writers;
  for (unsigned version = first; version <= last; ++version) {
    SEGUE_ASSIGN_OR_RETURN(workload::VersionWriter writer,
                           workload::VersionWriter::Create(layout, directories[version]));
    writers.push_back(std::move(writer));
  }
  SEGUE_RETURN_IF_ERROR(simulation.Run(first, last, threads, [&](const Piece& piece) {
    const std::size_t index = stored.first[piece.tensor] + static_cast<std::size_t>(piece.part);
    return writers[piece.version - first].Write(index, piece.offset, piece.bytes);
  }));
  for (workload::VersionWriter& writer : writers) SEGUE_RETURN_IF_ERROR(writer.Close());
  return {};
}

}  // namespace

Result<GenerateReport> Generate(const GenerateOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  SEGUE_RETURN_IF_ERROR(CheckOptions(options));
  SEGUE_ASSIGN_OR_RETURN(const workload::Preset preset, workload::FindPreset(options.preset));
  SEGUE_RETURN_IF_ERROR(CheckSize(options, options.model_bytes));
  std::vector<workload::ModelTensor> tensors =
      workload::MakeModel({options.model_bytes, preset.format, preset.has_experts, options.seed});
  const Stored stored = ListStored(tensors);
  SEGUE_ASSIGN_OR_RETURN(const workload::ShardLayout layout,
                         workload::ShardLayout::Make(stored.specs, options.shard_count));
  // A small size is met by about; many steps of it still add up.
  SEGUE_RETURN_IF_ERROR(CheckSize(options, layout.total_size()));
  SEGUE_ASSIGN_OR_RETURN(
      Simulation simulation,
      Simulation::Make(preset, std::move(tensors), options.seed, options.steps, options.threads));
  GenerateReport report;
  for (unsigned version = 0; version <= options.steps; ++version) {
    report.directories.push_back(JoinPath(options.directory, VersionName(version)));
  }
  const auto shards = static_cast<unsigned>(layout.shard_count());
  const unsigned stretch = std::max(1u, kOpenFilesMax / shards);
  for (unsigned first = 0; first <= options.steps; first += stretch) {
    const unsigned last = std::min(options.steps, first + stretch - 1);
    SEGUE_RETURN_IF_ERROR(WriteVersions(layout, stored, report.directories, first, last,
                                        options.threads, simulation));
  }
  for (const workload::StepCounts& counts : simulation.counts()) {
    report.steps.push_back(workload::Finish(counts));
  }
  report.model_bytes = layout.total_size();
  const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - begin;
  report.seconds = duration.count();
  return report;
}

}  // namespace segue
