// SPDX-License-Identifier: Apache-2.0
//
// segue engine: a stand-in for an engine, which reads live weights in a loop as forward steps
// would, and tells what the updates cost it.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/output.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "segue/engine_loop.h"

namespace segue::cli {
namespace {

Json ToJson(const EngineLoopReport& report) {
  Json versions = Json::array();
  for (const EngineVersionSeen& seen : report.seen) {
    versions.push_back({{"version", seen.version}, {"digest", seen.digest}, {"steps", seen.steps}});
  }
  return {{"steps", report.steps},
          {"step_s_median", report.step_s_median},
          {"step_s_max", report.step_s_max},
          {"start_wait_s", report.start_wait_s},
          {"wait_s_max", report.wait_s_max},
          {"waits_s", report.waits_s},
          {"versions", versions}};
}

void PrintText(const EngineLoopReport& report, bool verified) {
  if (report.steps == 0)
    return PrintLine("no step: no such segment came, or its gate was closed all the time");
  PrintLine(fmt::format(
      "{} steps of {} (longest {}), longest wait at the gate {}, {} before the first",
      HumanCount(report.steps), HumanSeconds(report.step_s_median), HumanSeconds(report.step_s_max),
      HumanSeconds(report.wait_s_max), HumanSeconds(report.start_wait_s)));
  Table table({"version", "steps", "digest"});
  for (const EngineVersionSeen& seen : report.seen) {
    table.Row({fmt::format("{}", seen.version), HumanCount(seen.steps), seen.digest});
  }
  PrintLine("");
  table.Print();
  if (verified) PrintLine("every step saw exactly its version");
}

}  // namespace

Verb AddEngine(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "engine", "Read live weights in a loop, as an engine would, and time the updates");
  const auto options = std::make_shared<EngineLoopOptions>();
  const auto unverified = std::make_shared<bool>(false);
  verb->add_option("--name", options->name, "Of the shared memory")->required()->type_name("NAME");
  AsCount(verb->add_option("--steps", options->steps, "Stop after N steps; by default on Ctrl-C"));
  AsCount(verb->add_option("--until", options->until_version,
                           "Stop after a step at version N or a later one"));
  verb->add_flag("--no-verify", *unverified,
                 "Do not hold what each step reads against its version's digest");
  const auto run = [options, unverified]() -> Result<Report> {
    CatchStopSignals();
    options->verify = !*unverified;
    options->stop = [] { return StopRequested(); };
    const Result<EngineLoopReport> report = RunEngineLoop(*options);
    if (!report.ok()) return report.status();
    return Report{ToJson(report.value()),
                  [shown = report.value(), options] { PrintText(shown, options->verify); },
                  {},
                  Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
