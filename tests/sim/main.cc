// SPDX-License-Identifier: Apache-2.0
//
// segue_sim: simulations by their seeds. Prints one line for all, and for a seed that failed the
// checker, the step, the end of the trace and how to run it again; ends with 1 then.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "base/file.h"
#include "sim/simulation.h"

namespace segue::sim {
namespace {

constexpr char kUsage[] =
    "usage: segue_sim [--seed N] [--seeds COUNT] [--steps M] [--trace] [--sabotage KIND]\n"
    "  --seed N        the first seed (1)\n"
    "  --seeds COUNT   how many, one after the other (1)\n"
    "  --steps M       steps with faults (20000)\n"
    "  --trace         print every event\n"
    "  --sabotage KIND do one thing wrong on purpose; a checker must find it\n";

struct Arguments {
  SimulationOptions options;
  std::uint64_t seeds = 1;
};

bool ParseNumber(const char* text, std::uint64_t& number) {
  const char* const end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

bool Parse(int count, char** words, Arguments& arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--trace") {
      arguments.options.print = true;
      continue;
    }
    if (++i == count) return false;
    bool fine = false;
    if (word == "--seed") fine = ParseNumber(words[i], arguments.options.seed);
    if (word == "--seeds") fine = ParseNumber(words[i], arguments.seeds);
    if (word == "--steps") fine = ParseNumber(words[i], arguments.options.steps);
    if (word == "--sabotage") {
      const auto kind = SabotageFromName(words[i]);
      fine = kind.has_value();
      arguments.options.sabotage = kind.value_or(Sabotage::kNone);
    }
    if (!fine) return false;
  }
  return true;
}

void PrintFailure(const SimulationOptions& options, const SimulationReport& report) {
  if (!options.print) {
    for (const std::string& line : report.tail) std::printf("%s\n", line.c_str());
  }
  std::string again = "./dev sim --seed " + std::to_string(options.seed) + " --steps " +
                      std::to_string(options.steps);
  if (options.sabotage != Sabotage::kNone) {
    again += " --sabotage " + std::string(SabotageName(options.sabotage));
  }
  std::printf("seed %llu FAILED at step %llu: checker '%s': %s\nrun it again: %s --trace\n",
              static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(report.violation->step),
              report.violation->checker.c_str(), report.violation->what.c_str(), again.c_str());
}

int Main(int count, char** words) {
  Arguments arguments;
  if (!Parse(count, words, arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  SimulationOptions options = arguments.options;
  // Memory, where there is any: checkpoints and payloads are real files.
  options.scratch = FileExists("/dev/shm") ? "/dev/shm" : "";
  SimulationReport sum;
  std::string hash;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i, ++options.seed) {
    const SimulationReport report = RunSimulation(options);
    if (report.violation) {
      PrintFailure(options, report);
      return 1;
    }
    sum.Add(report);
    hash = report.hash;
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu seeds, %llu steps: %llu versions published, %llu updates by hand, %llu deaths, "
      "%llu receivers opened, %llu of them in the middle of an apply, %llu segments in the middle "
      "of "
      "an update with another, %llu rebuilds; no checker objects; last trace %s\n",
      number(arguments.seeds), number(sum.steps), number(sum.published), number(sum.updates),
      number(sum.deaths), number(sum.takeovers), number(sum.resolved), number(sum.announced),
      number(sum.rebuilds), hash.c_str());
  return 0;
}

}  // namespace
}  // namespace segue::sim

int main(int count, char** words) { return segue::sim::Main(count, words); }
