// SPDX-License-Identifier: Apache-2.0
//
// segue bench: every profile and two baselines on the same data in one run, beside what this
// machine can read and copy. docs/performance.md explains each figure.
#include <fmt/core.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/stop_guard.h"
#include "cli/verbs.h"
#include "segue/bench.h"

namespace segue::cli {
namespace {

// Below that a run shows nothing but fixed costs.
constexpr std::uint64_t kSizeMin = 64 << 10;

// A new directory below `parent` (the system's for temporary files where that is empty) that goes
// with all that is in it, also when the program is told to stop.
class Scratch {
 public:
  static Result<std::unique_ptr<Scratch>> Make(const std::string& parent) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path folder = parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
    if (!error) fs::create_directories(folder, error);
    std::string path = (folder / "segue-bench-XXXXXX").string();
    if (error || ::mkdtemp(path.data()) == nullptr) {
      return InvalidArgument(fmt::format("--directory: cannot make a directory in '{}': {}",
                                         folder.string(),
                                         error ? error.message() : std::strerror(errno)));
    }
    return std::unique_ptr<Scratch>(new Scratch(std::move(path)));
  }
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path)
      : path_(std::move(path)), guard_("bench", [path = path_] {
          RemoveWhileWritten({path});
          return std::string("its temporary directory was removed");
        }) {}
  std::string path_;
  StopGuard guard_;
};

Json ToJson(const ProfileFigures& figures) {
  return {{"payload_bytes", figures.payload_bytes},
          {"staged_bytes", figures.staged_bytes},
          {"encode_s", figures.encode_s},
          {"fetch_s", figures.fetch_s},
          {"stage_s", figures.stage_s},
          {"preflight_s", figures.preflight_s},
          {"pause_s", figures.pause_s},
          {"publisher_peak_bytes", figures.publisher_peak_bytes},
          {"receiver_peak_bytes", figures.receiver_peak_bytes}};
}

Json ToJson(const BaselineFigures& figures) {
  return {{"payload_bytes", figures.payload_bytes},
          {"total_s", figures.total_s},
          {"pause_s", figures.pause_s}};
}

template <typename Figures>
Json ToJson(const std::map<std::string, Figures>& parts) {
  Json json = Json::object();
  for (const auto& [name, figures] : parts) json[name] = ToJson(figures);
  return json;
}

Json ToJson(const BenchReport& report) {
  return {{"model_bytes", report.model_bytes},
          {"preset", report.preset},
          {"threads", report.threads},
          {"kernels", report.kernels},
          {"density", report.density},
          {"changed_elements", report.changed_elements},
          {"entropy_bound_bytes", report.entropy_bound_bytes},
          {"read_gbps", report.read_gbps},
          {"copy_gbps", report.copy_gbps},
          {"compare_s", report.compare_s},
          {"copy_s", report.copy_s},
          {"floor_s", report.floor_s},
          {"verified", report.verified},
          {"profiles", ToJson(report.profiles)},
          {"baselines", ToJson(report.baselines)}};
}

void PrintMachine(const BenchReport& report) {
  PrintLine(fmt::format("{} of {}: {} changed ({})", HumanBytes(report.model_bytes),
                        Printable(report.preset), Counted(report.changed_elements, "element"),
                        HumanShare(report.density, 1)));
  PrintLine(fmt::format("{}, {} kernels; read {:.1f} GB/s, copy {:.1f} GB/s",
                        Counted(report.threads, "thread"), report.kernels, report.read_gbps,
                        report.copy_gbps));
  PrintLine(fmt::format("bare compare {}, bare copy {}, touched lines alone {}",
                        HumanSeconds(report.compare_s), HumanSeconds(report.copy_s),
                        HumanSeconds(report.floor_s)));
}

void PrintProfiles(const BenchReport& report) {
  Table table({"profile", "payload", "staged", "encode", "fetch", "stage", "preflight", "pause",
               "publisher", "receiver"});
  for (const auto& [name, figures] : report.profiles) {
    table.Row({Printable(name), HumanBytes(figures.payload_bytes), HumanBytes(figures.staged_bytes),
               HumanSeconds(figures.encode_s), HumanSeconds(figures.fetch_s),
               HumanSeconds(figures.stage_s), HumanSeconds(figures.preflight_s),
               HumanSeconds(figures.pause_s), HumanBytes(figures.publisher_peak_bytes),
               HumanBytes(figures.receiver_peak_bytes)});
  }
  table.Row({"(entropy bound)", HumanBytes(report.entropy_bound_bytes)});
  PrintLine("");
  table.Print();
  PrintLine("  publisher, receiver: peak memory above the weights");
}

void PrintBaselines(const BenchReport& report) {
  Table table({"baseline", "payload", "total", "pause"});
  for (const auto& [name, figures] : report.baselines) {
    table.Row({Printable(name), HumanBytes(figures.payload_bytes), HumanSeconds(figures.total_s),
               HumanSeconds(figures.pause_s)});
  }
  PrintLine("");
  table.Print();
}

void PrintText(const BenchReport& report) {
  PrintMachine(report);
  PrintProfiles(report);
  PrintBaselines(report);
  PrintLine("");
  PrintLine(report.verified ? "verified: every profile and baseline gave the target, byte for byte"
                            : "NOT verified: a result differs from the target");
}

}  // namespace

Verb AddBench(CLI::App& program) {
  constexpr std::uint64_t kMax = std::numeric_limits<unsigned>::max();
  CLI::App* const verb =
      program.add_subcommand("bench", "Measure every profile and two baselines on this machine");
  const auto options = std::make_shared<BenchOptions>();
  AsSize(verb->add_option("--size", options->size, "Of the model (256MiB)"), kSizeMin);
  CLI::Option* const preset =
      verb->add_option("--preset", options->preset,
                       "Of segue generate --list-presets, or trace (nvfp4-0.085)")
          ->type_name("NAME");
  verb->add_option("--trace", options->trace, "Checkpoints v0000, v0001, ... for preset trace")
      ->type_name("DIR");
  verb->add_option("--directory", options->directory,
                   "For the store and files; by default a temporary one")
      ->type_name("DIR");
  AsCount(verb->add_option("--repeats", options->repeats, "Times are medians over these (5)"),
          kMax);
  AsCount(verb->add_option("--seed", options->seed, "Seed of the data (1)"));
  AddThreads(*verb, options->threads);
  const auto run = [options, preset]() -> Result<Report> {
    if (!options->trace.empty() && preset->count() == 0) options->preset = "trace";
    Result<std::unique_ptr<Scratch>> scratch = Scratch::Make(options->directory);
    if (!scratch.ok()) return scratch.status();
    options->directory = scratch.value()->path();
    const Result<BenchReport> report = WithProgress("bench", [&](Progress progress) {
      options->progress = std::move(progress);
      return RunBench(*options);
    });
    if (!report.ok()) return report.status();
    const Status failure =
        report->verified ? Status() : Corruption("bench: a result differs from the target");
    return Report{
        ToJson(report.value()), [shown = report.value()] { PrintText(shown); }, {}, failure};
  };
  return {verb, run};
}

}  // namespace segue::cli
