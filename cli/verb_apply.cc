// SPDX-License-Identifier: Apache-2.0
//
// segue apply: brings a checkpoint to a version of a store, in one step however many versions lie
// between, and shows the time of each stage. Only the stage `apply` would hold an engine.
#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/stop_guard.h"
#include "cli/verbs.h"
#include "segue/apply.h"

namespace segue::cli {
namespace {

Json ToJson(const ApplyReport& report) {
  return {{"lineage", report.lineage},
          {"base_version", report.base_version},
          {"target_version", report.target_version},
          {"target_digest", report.target_digest},
          {"path", report.path},
          {"resolved_first", report.resolved_first},
          {"full_scan", report.full_scan},
          {"payload_bytes", report.payload_bytes},
          {"staged_bytes", report.staged_bytes},
          {"changed_chunks", report.changed_chunks},
          {"changed_elements", report.changed_elements},
          {"locate_s", report.locate_s},
          {"fetch_s", report.fetch_s},
          {"stage_s", report.stage_s},
          {"preflight_s", report.preflight_s},
          {"journal_s", report.journal_s},
          {"apply_s", report.apply_s},
          {"sync_s", report.sync_s},
          {"warnings", report.warnings}};
}

void PrintStages(const ApplyReport& report, bool in_place) {
  Table table({"stage", "time", "bytes"});
  table.Row({"locate", HumanSeconds(report.locate_s)});
  table.Row({"fetch", HumanSeconds(report.fetch_s), HumanBytes(report.payload_bytes)});
  table.Row({"stage", HumanSeconds(report.stage_s), HumanBytes(report.staged_bytes)});
  table.Row({"preflight", HumanSeconds(report.preflight_s)});
  if (in_place) table.Row({"journal", HumanSeconds(report.journal_s)});
  table.Row({in_place ? "apply = pause" : "apply", HumanSeconds(report.apply_s)});
  table.Row({"sync", HumanSeconds(report.sync_s)});
  PrintLine("");
  table.Print();
}

void PrintText(const ApplyReport& report, const ApplyOptions& options) {
  const bool in_place = options.output.empty();
  const std::string& place = in_place ? options.checkpoint : options.output;
  if (report.resolved_first) PrintLine("an interrupted apply was resolved first");
  if (report.path.empty()) {
    PrintLine(in_place ? fmt::format("{}: at version {} of {} already", Printable(place),
                                     report.target_version, Printable(report.lineage))
                       : fmt::format("{}: a copy, since {} is at version {} of {} already",
                                     Printable(place), Printable(options.checkpoint),
                                     report.target_version, Printable(report.lineage)));
    PrintLine(fmt::format("  digest   {}", report.target_digest));
    return;
  }
  PrintLine(fmt::format("{}: version {} to {} of {}, in one step over {}", Printable(place),
                        report.base_version, report.target_version, Printable(report.lineage),
                        Counted(report.path.size(), "version")));
  PrintLine(fmt::format("  digest   {}", report.target_digest));
  PrintLine(fmt::format("  changed  {} in {}", Counted(report.changed_elements, "element"),
                        Counted(report.changed_chunks, "chunk")));
  PrintLine(fmt::format("  proven   {}", report.full_scan
                                             ? "the whole base, and every change"
                                             : "every change; the rest of the base was trusted"));
  PrintStages(report, in_place);
}

// What to know about an apply that was told to stop.
std::string AfterStop(const ApplyOptions& options) {
  if (options.output.empty()) {
    return fmt::format("run 'segue resolve --checkpoint {}' before the checkpoint is used again",
                       options.checkpoint);
  }
  return fmt::format(
      "there is no '{0}'; what was built of it, '{0}.segue-part', goes with the next apply to it",
      options.output);
}

}  // namespace

Verb AddApply(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand("apply", "Bring a checkpoint to a version");
  const auto options = std::make_shared<ApplyOptions>();
  verb->add_option("--store", options->store,
                   "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb->add_option("--checkpoint", options->checkpoint, "Checkpoint to start from")
      ->required()
      ->type_name("DIR");
  AsCount(verb->add_option("--to", options->to, "Version; by default the newest"));
  verb->add_option("--output", options->output,
                   "Write the result to this new directory; by default in place")
      ->type_name("DIR");
  verb->add_option("--lineage", options->lineage,
                   "Lineage; by default what the checkpoint's state says, else 'default'")
      ->type_name("NAME");
  verb->add_flag("--trust-state", options->trust_state,
                 "Prove what changes alone, not the whole base");
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  const auto run = [options]() -> Result<Report> {
    const StopGuard guard("apply", [options] { return AfterStop(*options); });
    const Result<ApplyReport> report = WithProgress("apply", [&](Progress progress) {
      options->progress = std::move(progress);
      return Apply(*options);
    });
    if (!report.ok()) return report.status();
    return Report{ToJson(report.value()),
                  [shown = report.value(), options] { PrintText(shown, *options); },
                  report->warnings, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
