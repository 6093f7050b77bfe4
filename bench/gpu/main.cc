// SPDX-License-Identifier: Apache-2.0
//
// segue_gpu_check: runs the parts that are named (all, by default) and prints one JSON object.
// Exit code 0: everything was right; 1: there are findings; 2: the call or the device is at fault.
// tools/gpu_check is what people call.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/gpu.h"

namespace segue::gpu_check {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kParts = {
    Part{"bits", CheckBits},         Part{"large", CheckLarge},
    Part{"machine", MeasureMachine}, Part{"apply", MeasureApply},
    Part{"decoders", CheckDecoders}, Part{"density", MeasureDensity},
    Part{"scrub", MeasureScrub},     Part{"product", MeasureBesideProduct},
    Part{"trainer", MeasureTrainer}, Part{"pipeline", MeasurePipeline},
};

Json ToJson(const Figure& figure) {
  return {{"name", figure.name},
          {"workload", figure.workload},
          {"model_bytes", figure.model_bytes},
          {"seconds", figure.seconds},
          {"details", figure.details}};
}

Json ToJson(const Goal& goal) {
  return {{"name", goal.name},
          {"value", goal.value},
          {"limit", goal.limit},
          {"unit", goal.unit},
          {"met", goal.value <= goal.limit}};
}

template <typename Item>
Json ListToJson(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(ToJson(item));
  return list;
}

Json ToJson(const Check& check, const Gpu& gpu, const Json& parts) {
  return {{"device", gpu.name()},
          {"fake", check.options.fake},
          {"driver_version", gpu.driver_version()},
          {"device_memory_bytes", gpu.memory_size()},
          {"model_bytes", check.options.size},
          {"parts", parts},
          {"expectations", check.expectations()},
          {"findings", check.findings()},
          {"skipped", check.skipped()},
          {"figures", ListToJson(check.figures())},
          {"goals", ListToJson(check.goals())}};
}

// One line each on stderr, for tools/gpu_check to take over where the part does not reach its end.
Listener TellAtOnce() {
  const auto tell = [](const char* kind, const Json& json) {
    fmt::print(stderr, "{} {}\n", kind, json.dump());
    std::fflush(stderr);
  };
  return {[tell](const Figure& figure) { tell("figures", ToJson(figure)); },
          [tell](const Goal& goal) { tell("goals", ToJson(goal)); },
          [tell](const std::string& finding) { tell("findings", finding); }};
}

Json RunParts(Check& check, Gpu& gpu, const std::vector<std::string>& names) {
  Json done = Json::array();
  for (const Part& part : kParts) {
    if (!names.empty() && std::find(names.begin(), names.end(), part.name) == names.end()) continue;
    Status status;
    const double seconds = bench::Seconds([&] { status = part.run(check, gpu); });
    if (!status.ok()) check.Find(fmt::format("{}: {}", part.name, status.ToString()));
    done.push_back({{"name", part.name}, {"seconds", seconds}});
    fmt::print(stderr, "{}: {:.1f} s, {} findings\n", part.name, seconds, check.findings().size());
  }
  return done;
}

int Run(int argc, char** argv) {
  CheckOptions options;
  options.size = 55'600'000'000;
  options.unit = 1ull << 30;
  options.large = (5ull << 30) + 4096;
  std::vector<std::string> names;
  CLI::App program("Checks and measures Segue on a GPU", "segue_gpu_check");
  std::vector<std::string> known;
  for (const Part& part : kParts) known.emplace_back(part.name);
  program.add_option("--part", names, "One of the parts; may be given several times")
      ->check(CLI::IsMember(known));
  program.add_option("--size", options.size, "Bytes of the model that is measured");
  program.add_option("--unit", options.unit, "Bytes of a tensor of it");
  program.add_option("--large", options.large, "Bytes of the one large tensor");
  program.add_option("--threads", options.threads, "Of the host; 0 for every core");
  program.add_option("--repeats", options.repeats, "Of what is timed");
  program.add_option("--scratch", options.scratch, "Directory for stores (/dev/shm)");
  program.add_flag("--fake", options.fake, "The driver is no GPU's: no figures");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  Result<std::unique_ptr<Gpu>> gpu = Gpu::Open(options.threads);
  if (!gpu.ok()) {
    fmt::print(stderr, "segue_gpu_check: {}\n", gpu.status().ToString());
    return 2;
  }
  Check check(options, TellAtOnce());
  const Json parts = RunParts(check, **gpu, names);
  fmt::print("{}\n", ToJson(check, **gpu, parts).dump(2));
  return check.findings().empty() ? 0 : 1;
}

}  // namespace
}  // namespace segue::gpu_check

int main(int argc, char** argv) { return segue::gpu_check::Run(argc, argv); }
