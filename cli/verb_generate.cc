// SPDX-License-Identifier: Apache-2.0
//
// segue generate: writes checkpoints and steps of updates that look like real ones, from a seed,
// for trials and measurements without a trainer.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <system_error>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/stop_guard.h"
#include "cli/verbs.h"
#include "segue/generate.h"

namespace segue::cli {
namespace {

// The smallest model that has every kind of tensor is about as large.
constexpr std::uint64_t kSizeMin = 64 << 10;

Json ToJson(const GeneratedStep& step) {
  return {{"elements", step.elements},
          {"changed", step.changed},
          {"one_ulp_share", step.one_ulp_share},
          {"multi_bit_share", step.multi_bit_share},
          {"upper_half_share", step.upper_half_share},
          {"repeat_share", step.repeat_share},
          {"seen_share", step.seen_share},
          {"from_base_share", step.from_base_share},
          {"xor_bit_share", step.xor_bit_share},
          {"gap_share", step.gap_share},
          {"magnitude_ratio", step.magnitude_ratio},
          {"scales", step.scales},
          {"scales_changed_share", step.scales_changed_share},
          {"rest_elements", step.rest_elements},
          {"rest_changed", step.rest_changed}};
}

Json ToJson(const GenerateReport& report) {
  Json steps = Json::array();
  for (const GeneratedStep& step : report.steps) steps.push_back(ToJson(step));
  return {{"directories", report.directories},
          {"steps", steps},
          {"model_bytes", report.model_bytes},
          {"seconds", report.seconds}};
}

void PrintText(const GenerateReport& report) {
  PrintLine(fmt::format("{} of {} in {}", Counted(report.directories.size(), "version"),
                        HumanBytes(report.model_bytes), HumanSeconds(report.seconds)));
  Table table({"version", "elements", "changed", "density", "one unit", "repeated"});
  for (std::size_t i = 0; i < report.directories.size(); ++i) {
    const std::string name = Printable(report.directories[i]);
    if (i == 0 || i > report.steps.size()) {
      table.Row({name});
      continue;
    }
    const GeneratedStep& step = report.steps[i - 1];
    table.Row({name, HumanCount(step.elements), HumanCount(step.changed),
               HumanShare(static_cast<double>(step.changed), static_cast<double>(step.elements)),
               HumanShare(step.one_ulp_share, 1), HumanShare(step.repeat_share, 1)});
  }
  table.Print();
}

Json PresetsToJson() {
  Json presets = Json::array();
  for (const PresetInfo& preset : Presets()) {
    presets.push_back({{"name", preset.name},
                       {"format", preset.format},
                       {"density", preset.density},
                       {"summary", preset.summary}});
  }
  return {{"presets", presets}};
}

void PrintPresets() {
  std::size_t width = 0;
  for (const PresetInfo& preset : Presets()) width = std::max(width, preset.summary.size());
  Table table({"preset", "format", "density", fmt::format("{:<{}}", "what it is", width)});
  for (const PresetInfo& preset : Presets()) {
    table.Row({std::string(preset.name), std::string(preset.format), HumanShare(preset.density, 1),
               fmt::format("{:<{}}", preset.summary, width)});
  }
  table.Print();
}

// Removes what this call has written. Versions are written side by side: none is whole before the
// end, and what was there beforehand is not ours.
std::function<std::string()> RemovalOf(const GenerateOptions& options) {
  namespace fs = std::filesystem;
  std::vector<std::string> ours;
  std::error_code error;
  const bool is_new = !fs::is_directory(options.directory, error);
  if (is_new) ours.push_back(options.directory);
  for (std::uint64_t version = 0; !is_new && version <= options.steps; ++version) {
    const fs::path path = fs::path(options.directory) / fmt::format("v{:010}", version);
    if (!fs::is_directory(path, error)) ours.push_back(path.string());
  }
  return [ours] {
    RemoveWhileWritten(ours);
    return std::string("what it had written was removed");
  };
}

}  // namespace

Verb AddGenerate(CLI::App& program) {
  constexpr std::uint64_t kMax = std::numeric_limits<unsigned>::max();
  CLI::App* const verb =
      program.add_subcommand("generate", "Write checkpoints and steps that look like real ones");
  const auto options = std::make_shared<GenerateOptions>();
  const auto list = std::make_shared<bool>(false);
  verb->add_option("--output", options->directory, "Directory for v0000000000, v0000000001, ...")
      ->type_name("DIR");
  verb->add_option("--preset", options->preset, "Format and density of a step (bf16-1)")
      ->type_name("NAME");
  AsSize(verb->add_option("--size", options->model_bytes, "Of one checkpoint, about (64MiB)"),
         kSizeMin);
  AsCount(verb->add_option("--steps", options->steps, "Versions after the base (1)"), kMax);
  AsCount(verb->add_option("--shards", options->shard_count, "Files of a checkpoint (2)"), kMax);
  AsCount(verb->add_option("--seed", options->seed, "Seed; the same one gives the same bytes (1)"));
  AddThreads(*verb, options->threads);
  verb->add_flag("--list-presets", *list, "List the presets, write nothing");
  const auto run = [options, list]() -> Result<Report> {
    if (*list) return Report{PresetsToJson(), PrintPresets, {}, Status()};
    if (options->directory.empty()) {
      return InvalidArgument("--output: expected a directory to write to, found none");
    }
    const StopGuard guard("generate", RemovalOf(*options));
    const Result<GenerateReport> report =
        WithProgress("generate", [&](const Progress&) { return Generate(*options); });
    if (!report.ok()) return report.status();
    return Report{
        ToJson(report.value()), [shown = report.value()] { PrintText(shown); }, {}, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
