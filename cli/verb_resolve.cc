// SPDX-License-Identifier: Apache-2.0
//
// segue resolve: brings a checkpoint out of an interrupted apply, to exactly its base or exactly
// its target. Needs the checkpoint alone.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/apply.h"

namespace segue::cli {
namespace {

struct ResolveOptions {
  std::string checkpoint;
  unsigned threads = 0;
};

std::string_view OutcomeName(ResolveOutcome outcome) {
  switch (outcome) {
    case ResolveOutcome::kNothingToDo: return "nothing_to_do";
    case ResolveOutcome::kKeptBase: return "kept_base";
    case ResolveOutcome::kFinishedTarget: return "finished_target";
  }
  return "unknown";
}

Json ToJson(const ResolveReport& report) {
  return {{"outcome", OutcomeName(report.outcome)},
          {"version", report.version ? Json(*report.version) : Json(nullptr)},
          {"chunks_at_base", report.chunks_at_base},
          {"chunks_at_target", report.chunks_at_target},
          {"chunks_mixed", report.chunks_mixed}};
}

void PrintText(const ResolveReport& report, const std::string& checkpoint) {
  const std::string name = Printable(checkpoint);
  if (report.outcome == ResolveOutcome::kNothingToDo) {
    PrintLine(fmt::format("{}: no apply was interrupted", name));
    return;
  }
  const bool kept = report.outcome == ResolveOutcome::kKeptBase;
  PrintLine(fmt::format("{}: {}; it is at {}", name,
                        kept ? "no weight was being changed" : "the interrupted apply was finished",
                        report.version ? fmt::format("version {}", *report.version)
                                       : "the version that it was at before"));
  if (kept) return;
  PrintLine(fmt::format("  chunks found: {} at base, {} at target, {} half written",
                        HumanCount(report.chunks_at_base), HumanCount(report.chunks_at_target),
                        HumanCount(report.chunks_mixed)));
}

}  // namespace

Verb AddResolve(CLI::App& program) {
  CLI::App* const verb =
      program.add_subcommand("resolve", "Finish or undo an apply that was interrupted");
  const auto options = std::make_shared<ResolveOptions>();
  verb->add_option("--checkpoint", options->checkpoint, "Checkpoint to resolve")
      ->required()
      ->type_name("DIR");
  AddThreads(*verb, options->threads);
  const auto run = [options]() -> Result<Report> {
    const Result<ResolveReport> report = WithProgress(
        "resolve", [&](const Progress&) { return Resolve(options->checkpoint, options->threads); });
    if (!report.ok()) return report.status();
    return Report{ToJson(report.value()),
                  [shown = report.value(), options] { PrintText(shown, options->checkpoint); },
                  {},
                  Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
