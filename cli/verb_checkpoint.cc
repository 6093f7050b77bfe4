// SPDX-License-Identifier: Apache-2.0
//
// segue checkpoint and segue restore: a version as one small file, and back to a full checkpoint.
#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/apply.h"
#include "segue/checkpoint_file.h"

namespace segue::cli {
namespace {

Json ToJson(const CheckpointFileReport& report) {
  return {{"lineage", report.lineage},
          {"base_version", report.base_version},
          {"version", report.version},
          {"base_digest", report.base_digest},
          {"digest", report.digest},
          {"steps", report.steps},
          {"model_bytes", report.model_bytes},
          {"file_bytes", report.file_bytes},
          {"changed_elements", report.changed_elements}};
}

void PrintText(const CheckpointFileReport& report, const std::string& output) {
  PrintLine(fmt::format("{}: version {} of {}, on top of version {}", Printable(output),
                        report.version, Printable(report.lineage), report.base_version));
  PrintLine(fmt::format("  digest   {}", report.digest));
  PrintLine(fmt::format("  needs    a base checkpoint with digest {}", report.base_digest));
  PrintLine(fmt::format("  size     {} for {} of weights, {} elements changed",
                        HumanBytes(report.file_bytes), HumanBytes(report.model_bytes),
                        HumanCount(report.changed_elements)));
}

Result<Report> Restore(const std::shared_ptr<ApplyOptions>& options) {
  ApplyOptions apply = *options;
  apply.store = "file:" + options->store;
  const Result<ApplyReport> report = WithProgress("restore", [&](Progress progress) {
    apply.progress = std::move(progress);
    return Apply(apply);
  });
  if (!report.ok()) return report.status();
  const Json json = {{"lineage", report->lineage},
                     {"base_version", report->base_version},
                     {"version", report->target_version},
                     {"digest", report->target_digest},
                     {"changed_elements", report->changed_elements},
                     {"warnings", report->warnings}};
  return Report{json,
                [shown = report.value(), options] {
                  PrintLine(fmt::format("{}: version {} of {}, proven", Printable(options->output),
                                        shown.target_version, Printable(shown.lineage)));
                  PrintLine(fmt::format("  digest   {}", shown.target_digest));
                },
                report->warnings, Status()};
}

}  // namespace

Verb AddCheckpoint(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "checkpoint", "Write a version as one file: what changed since the lineage's origin");
  const auto options = std::make_shared<CheckpointFileOptions>();
  verb->add_option("--store", options->store,
                   "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb->add_option("--output", options->output, "File to write")->required()->type_name("FILE");
  AsCount(verb->add_option("--version", options->version, "Version; by default the newest"));
  verb->add_option("--lineage", options->lineage, "Lineage ('default')")->type_name("NAME");
  verb->add_option("--profile", options->profile, "How it is encoded (lz4-zstd)")
      ->type_name("NAME");
  AddSignKey(*verb, options->keys);
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  const auto run = [options]() -> Result<Report> {
    const Result<CheckpointFileReport> report = WithProgress("checkpoint", [&](Progress progress) {
      options->progress = std::move(progress);
      return WriteCheckpointFile(*options);
    });
    if (!report.ok()) return report.status();
    return Report{ToJson(report.value()),
                  [shown = report.value(), options] { PrintText(shown, options->output); },
                  {},
                  Status()};
  };
  return {verb, run};
}

Verb AddRestore(CLI::App& program) {
  CLI::App* const verb =
      program.add_subcommand("restore", "Turn a file of `segue checkpoint` into a full checkpoint");
  const auto options = std::make_shared<ApplyOptions>();
  verb->add_option("--file", options->store, "What segue checkpoint wrote")
      ->required()
      ->type_name("FILE");
  verb->add_option("--base", options->checkpoint, "The base checkpoint that it needs")
      ->required()
      ->type_name("DIR");
  verb->add_option("--output", options->output, "New directory for the full checkpoint")
      ->required()
      ->type_name("DIR");
  verb->add_option("--lineage", options->lineage, "Lineage ('default')")->type_name("NAME");
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  return {verb, [options] { return Restore(options); }};
}

}  // namespace segue::cli
