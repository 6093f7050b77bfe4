// SPDX-License-Identifier: Apache-2.0
//
// segue export-disk-delta and segue import-disk-delta: versions of a lineage as the directories
// that Miles and slime read, and their directories as versions.
#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/disk_delta.h"

namespace segue::cli {
namespace {

Json ToJson(const ExportDeltaReport& report) {
  Json versions = Json::array();
  for (const ExportedDelta& version : report.versions) {
    versions.push_back({{"version", version.version},
                        {"number", version.number},
                        {"directory", version.directory},
                        {"changed_tensors", version.changed_tensors},
                        {"bytes", version.bytes}});
  }
  return {{"lineage", report.lineage},
          {"from", report.from},
          {"to", report.to},
          {"versions", versions},
          {"warnings", report.warnings}};
}

void PrintText(const ExportDeltaReport& report) {
  PrintLine(fmt::format("{}: {} after version {}", Printable(report.lineage),
                        Counted(report.versions.size(), "version"), report.from));
  Table table({"directory", "version", "tensors", "size"});
  for (const ExportedDelta& version : report.versions) {
    table.Row({Printable(version.directory), HumanCount(version.version),
               HumanCount(version.changed_tensors), HumanBytes(version.bytes)});
  }
  if (!report.versions.empty()) table.Print();
}

Json ToJson(const ImportDeltaReport& report) {
  Json versions = Json::array();
  for (const ImportedDelta& version : report.versions) {
    versions.push_back({{"version", version.version},
                        {"full", version.full},
                        {"already_published", version.already_published},
                        {"changed_elements", version.changed_elements},
                        {"payload_bytes", version.payload_bytes},
                        {"digest", version.digest}});
  }
  return {{"lineage", report.lineage},
          {"from", report.from},
          {"versions", versions},
          {"warnings", report.warnings}};
}

void PrintText(const ImportDeltaReport& report) {
  PrintLine(fmt::format("{}: {} after version {}", Printable(report.lineage),
                        Counted(report.versions.size(), "version"), report.from));
  Table table({"version", "changed", "payload", ""});
  for (const ImportedDelta& version : report.versions) {
    std::string note = version.full ? "full checkpoint" : "";
    if (version.already_published) note += note.empty() ? "was there" : ", was there";
    table.Row({HumanCount(version.version), HumanCount(version.changed_elements),
               HumanBytes(version.payload_bytes), note});
  }
  table.Print();
}

// Runs it with a progress bar and shows its report.
template <typename Options, typename Run>
Result<Report> RunAndShow(const char* verb, const std::shared_ptr<Options>& options, Run run) {
  const auto report = WithProgress(verb, [&](const Progress& progress) {
    options->progress = progress;
    return run(*options);
  });
  if (!report.ok()) return report.status();
  return Report{ToJson(report.value()), [shown = report.value()] { PrintText(shown); },
                report->warnings, Status()};
}

void AddStoreAndLineage(CLI::App& verb, std::string& store, std::string& lineage) {
  verb.add_option("--store", store,
                  "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb.add_option("--lineage", lineage, "Lineage ('default')")->type_name("NAME");
}

}  // namespace

Verb AddExportDiskDelta(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "export-disk-delta", "Write versions as disk deltas, which Miles and slime read");
  const auto options = std::make_shared<ExportDeltaOptions>();
  AddStoreAndLineage(*verb, options->store, options->lineage);
  verb->add_option("--base", options->base, "Checkpoint at the version before the first")
      ->required()
      ->type_name("DIR");
  verb->add_option("--output", options->output, "Gets a directory weight_vNNNNNN for each version")
      ->required()
      ->type_name("DIR");
  AsCount(verb->add_option("--from", options->from, "Version of the base; by default found out"));
  AsCount(verb->add_option("--to", options->to, "Last version; by default the newest"));
  AsCount(verb->add_option("--first", options->first_number,
                           "Number the directories from here on, instead of by version"));
  verb->add_option("--encoding", options->encoding, "xor or overwrite (xor)")->type_name("NAME");
  verb->add_option("--checksum", options->checksum, "xxh3-128, blake3 or adler32 (xxh3-128)")
      ->type_name("NAME");
  AsCount(verb->add_option("--shards", options->shards, "Files that a version is cut into (1)"));
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  return {verb, [options] { return RunAndShow("export-disk-delta", options, ExportDiskDelta); }};
}

Verb AddImportDiskDelta(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "import-disk-delta", "Publish the disk deltas of Miles and slime as versions");
  const auto options = std::make_shared<ImportDeltaOptions>();
  verb->add_option("--source", options->source, "Directory that holds weight_vNNNNNN directories")
      ->required()
      ->type_name("DIR");
  AddStoreAndLineage(*verb, options->store, options->lineage);
  verb->add_option("--base", options->base, "Checkpoint that the first of them starts from")
      ->required()
      ->type_name("DIR");
  AsCount(verb->add_option("--from", options->from,
                           "Version of the base; by default the one before the lowest number"));
  AsCount(verb->add_option("--to", options->to, "Last version; by default the highest number"));
  verb->add_option("--profile", options->profile, "How payloads are encoded (sparse-zstd)")
      ->type_name("NAME");
  AsSize(verb->add_option("--chunk-size", options->chunk_size, "Of a new lineage (1MiB)"));
  AddSignKey(*verb, options->keys);
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  return {verb, [options] { return RunAndShow("import-disk-delta", options, ImportDiskDelta); }};
}

}  // namespace segue::cli
