// SPDX-License-Identifier: Apache-2.0
//
// segue inspect: what a file or directory is, and what it holds. The library describes it as JSON;
// here it is only indented.
#include <memory>
#include <string>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/inspect.h"

namespace segue::cli {
namespace {

struct InspectOptions {
  std::string path;
  std::string plan;
};

}  // namespace

Verb AddInspect(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "inspect", "Show a checkpoint, manifest, payload, plan, layout, lineage or store");
  const auto options = std::make_shared<InspectOptions>();
  verb->add_option("PATH", options->path, "File, directory, or a store's URL")->required();
  verb->add_option("--plan", options->plan,
                   "Plan that a payload needs; found by itself inside a store")
      ->type_name("FILE");
  const auto run = [options]() -> Result<Report> {
    const Result<std::string> report = WithProgress(
        "inspect", [&](const Progress&) { return Inspect(options->path, options->plan); });
    if (!report.ok()) return report.status();
    const Json parsed = Json::parse(report.value(), nullptr, false);
    if (!parsed.is_object()) return Internal("inspect: expected one JSON object from the library");
    return Report{parsed, [parsed] { PrintJsonIndented(parsed); }, {}, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
