// SPDX-License-Identifier: Apache-2.0
//
// segue verify: reads a whole checkpoint and says which weights it holds: by digest, by version of
// a store, or byte for byte against another checkpoint. Whatever is not as it should be is an
// error.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/inspect.h"

namespace segue::cli {
namespace {

Json ToJson(const VerifyReport& report) {
  return {{"digest", report.digest},
          {"plan", report.plan},
          {"model_bytes", report.model_bytes},
          {"version", report.version ? Json(*report.version) : Json(nullptr)},
          {"layout_matches", report.layout_matches},
          {"files", report.files},
          {"seconds", report.seconds},
          {"warnings", report.warnings}};
}

constexpr std::size_t kNamesShownMax = 4;

std::string Names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) {
    text += (i == 0 ? "" : ", ") + Printable(names[i]);
  }
  if (names.size() <= kNamesShownMax) return text;
  return text + " and " + Counted(names.size() - kNamesShownMax, "other");
}

void PrintText(const VerifyReport& report, const VerifyOptions& options) {
  const bool compared = !options.store.empty() || !options.against.empty();
  PrintLine(fmt::format("{}: {}", Printable(options.checkpoint),
                        compared ? "verified" : "read whole; nothing given to hold it against"));
  PrintLine(fmt::format("  digest   {}", report.digest));
  PrintLine(fmt::format("  plan     {}", report.plan));
  if (report.version) PrintLine(fmt::format("  version  {}", *report.version));
  if (compared) {
    PrintLine(fmt::format("  files    {}", report.layout_matches
                                               ? "byte for byte the same: " + Names(report.files)
                                               : "the same tensors, laid out in another way"));
    PrintLine("           others (configuration, tokenizer) were not compared");
  }
  const double gigabytes = static_cast<double>(report.model_bytes) / 1e9;
  const std::string rate =
      report.seconds > 0 ? fmt::format(", {:.2f} GB/s", gigabytes / report.seconds) : "";
  PrintLine(fmt::format("  read     {} in {}{}", HumanBytes(report.model_bytes),
                        HumanSeconds(report.seconds), rate));
}

}  // namespace

Verb AddVerify(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand("verify", "Prove which weights a checkpoint holds");
  const auto options = std::make_shared<VerifyOptions>();
  verb->add_option("--checkpoint", options->checkpoint, "Checkpoint to read")
      ->required()
      ->type_name("DIR");
  CLI::Option* const store =
      verb->add_option("--store", options->store, "Store whose versions it is held against")
          ->type_name("URL");
  verb->add_option("--lineage", options->lineage,
                   "Lineage; by default what the checkpoint's state says, else 'default'")
      ->needs(store)
      ->type_name("NAME");
  AsCount(verb->add_option("--version", options->version, "It must be exactly this version"))
      ->needs(store);
  verb->add_option("--against", options->against, "Checkpoint to compare with, byte for byte")
      ->type_name("DIR");
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  const auto run = [options]() -> Result<Report> {
    const Result<VerifyReport> report = WithProgress("verify", [&](Progress progress) {
      options->progress = std::move(progress);
      return Verify(*options);
    });
    if (!report.ok()) return report.status();
    return Report{ToJson(report.value()),
                  [shown = report.value(), options] { PrintText(shown, *options); },
                  report->warnings, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
