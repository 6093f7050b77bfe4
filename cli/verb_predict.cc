// SPDX-License-Identifier: Apache-2.0
//
// segue predict: what an update should cost on hardware that may not be at hand, stage by stage,
// from the cost model of docs/performance.md; beside it figures that were measured, where a file of
// tools/gpu_check is given. What is a model and what was measured is said on every line.
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <utility>

#include "cli/cost_model.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "segue/measurements.h"

namespace segue::cli {
namespace {

constexpr int kSourceWidth = 58;

struct PredictOptions {
  CostInput input;
  std::uint64_t model_bytes = 0;
  std::string measured;
};

Json ToJson(const CostStage& stage) {
  return {{"stage", stage.name},      {"place", stage.place}, {"kind", "model"},
          {"bytes", stage.bytes},     {"rate", stage.rate},   {"seconds", stage.seconds},
          {"rate_from", stage.source}};
}

Json ToJson(const CostInput& input, const CostEstimate& cost, const MeasuredRun& run) {
  Json stages = Json::array();
  for (const CostStage& stage : cost.stages) stages.push_back(ToJson(stage));
  Json measured = Json::array();
  for (const Measurement& figure : run.figures) {
    measured.push_back({{"stage", figure.name},
                        {"kind", "measurement"},
                        {"device", run.device},
                        {"workload", figure.workload},
                        {"model_bytes", figure.model_bytes},
                        {"seconds", figure.seconds}});
  }
  const CostSizes& sizes = cost.sizes;
  return {{"input",
           {{"model_bytes", input.model_bytes},
            {"density", input.density},
            {"format", input.format},
            {"gpu", input.gpu},
            {"gpus", input.gpus},
            {"link_gbps", input.link_gbps},
            {"threads", input.threads}}},
          {"sizes",
           {{"changed_elements", sizes.changed_elements},
            {"entropy_bound_bytes", sizes.entropy_bound},
            {"payload_bytes", sizes.payload},
            {"staged_bytes", sizes.staged},
            {"touched_sectors", sizes.touched_sectors}}},
          {"stages", stages},
          {"dense_pause", ToJson(cost.dense)},
          {"until_ready_seconds", cost.until_ready_seconds},
          {"pause_seconds", cost.pause_seconds},
          {"memory_of_one_gpu",
           {{"has", cost.gpu_memory},
            {"engine", cost.engine_memory},
            {"trainer", cost.trainer_memory}}},
          {"measured", measured}};
}

std::vector<std::string> Row(const CostStage& stage) {
  return {stage.name,
          stage.place,
          HumanBytes(stage.bytes),
          HumanBytes(stage.rate) + "/s",
          HumanSeconds(stage.seconds),
          fmt::format("{:<{}}", stage.source, kSourceWidth)};
}

void PrintModel(const CostInput& input, const CostEstimate& cost) {
  const CostSizes& sizes = cost.sizes;
  PrintLine(
      fmt::format("model, not measured: {} {} on {} x {} of one host, {} of the elements change",
                  HumanBytes(input.model_bytes), input.format, input.gpus, input.gpu,
                  HumanShare(input.density, 1)));
  PrintLine(fmt::format("payload {} (entropy bound {}), staged {}", HumanBytes(sizes.payload),
                        HumanBytes(sizes.entropy_bound), HumanBytes(sizes.staged)));
  PrintLine("");
  Table table({"stage", "where", "bytes", "rate", "time",
               fmt::format("{:<{}}", "rate from", kSourceWidth)});
  for (const CostStage& stage : cost.stages) table.Row(Row(stage));
  table.Print();
  PrintLine("");
  PrintLine(fmt::format("  until ready to apply, stages one after the other: {}",
                        HumanSeconds(cost.until_ready_seconds)));
  PrintLine(fmt::format("  pause: {}; at least {} with a dense mask ({})",
                        HumanSeconds(cost.pause_seconds), HumanSeconds(cost.dense.seconds),
                        cost.dense.source));
  PrintLine(
      fmt::format("  memory of one GPU, {}: weights and staged {}; a trainer's weights and "
                  "baseline {}",
                  HumanBytes(cost.gpu_memory), HumanBytes(cost.engine_memory),
                  HumanBytes(cost.trainer_memory)));
}

// What does not fit is said, not refused: parts may lie elsewhere.
std::vector<std::string> WarningsOf(const CostEstimate& cost) {
  std::vector<std::string> warnings;
  if (cost.engine_memory > cost.gpu_memory) {
    warnings.push_back(fmt::format("an engine's share, {}, does not fit into a GPU of {}",
                                   HumanBytes(cost.engine_memory), HumanBytes(cost.gpu_memory)));
  }
  if (cost.trainer_memory > cost.gpu_memory) {
    warnings.push_back(fmt::format(
        "a trainer's weights and baseline, {}, do not fit into a GPU of {}: with the baseline in "
        "memory of the host, comparing is as slow as the link to it",
        HumanBytes(cost.trainer_memory), HumanBytes(cost.gpu_memory)));
  }
  return warnings;
}

void PrintMeasured(const MeasuredRun& run) {
  PrintLine("");
  if (run.figures.empty()) {
    PrintLine(run.device.empty()
                  ? "measured: nothing given (--measured takes a file of tools/gpu_check)"
                  : fmt::format("measured: the run on {} has no figures", Printable(run.device)));
    return;
  }
  PrintLine(fmt::format("measured on {}:", Printable(run.device)));
  Table table({"stage", "workload", "model", "time"});
  for (const Measurement& figure : run.figures) {
    table.Row({Printable(figure.name), Printable(figure.workload), HumanBytes(figure.model_bytes),
               HumanSeconds(figure.seconds)});
  }
  table.Print();
}

Result<Report> Predict(const PredictOptions& options) {
  CostInput input = options.input;
  input.model_bytes = static_cast<double>(options.model_bytes);
  input.density = std::abs(input.density) == 0 ? 0 : input.density;  // No "-0".
  SEGUE_ASSIGN_OR_RETURN(const CostEstimate cost, EstimateCost(input));
  MeasuredRun run;
  if (!options.measured.empty()) {
    SEGUE_ASSIGN_OR_RETURN(run, ReadMeasurements(options.measured));
  }
  return Report{ToJson(input, cost, run),
                [input, cost, run] {
                  PrintModel(input, cost);
                  PrintMeasured(run);
                },
                WarningsOf(cost), Status()};
}

}  // namespace

Verb AddPredict(CLI::App& program) {
  constexpr std::uint64_t kGpusMax = 16;  // Of one host.
  constexpr std::uint64_t kThreadsMax = 4096;
  constexpr std::uint64_t kModelMin = 1'000'000;
  CLI::App* const verb =
      program.add_subcommand("predict", "Say what an update should cost on given hardware");
  const auto options = std::make_shared<PredictOptions>();
  CostInput& input = options->input;
  AsSize(verb->add_option("--model-bytes", options->model_bytes, "Of the whole model"), kModelMin)
      ->required();
  verb->add_option("--density", input.density, "Share of the elements that change: 0.00085")
      ->required();
  verb->add_option("--format", input.format, "Of the weights (nvfp4)")
      ->transform(CLI::IsMember(CostFormats(), CLI::ignore_case));
  verb->add_option("--gpu", input.gpu, "Kind (h200)")
      ->transform(CLI::IsMember(CostGpus(), CLI::ignore_case));
  AsCount(verb->add_option("--gpus", input.gpus, "Of one host, that share the model (1)"),
          kGpusMax);
  verb->add_option("--link-gbps", input.link_gbps, "Store to host, 10^9 bits a second (100)");
  AsCount(verb->add_option("--threads", input.threads, "Of the host, for codecs and hashes (32)"),
          kThreadsMax);
  verb->add_option("--measured", options->measured, "Figures of tools/gpu_check to print beside")
      ->type_name("FILE");
  return {verb, [options] { return Predict(*options); }};
}

}  // namespace segue::cli
