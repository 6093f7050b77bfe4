// SPDX-License-Identifier: Apache-2.0
//
// segue publish: makes the difference of two checkpoints the next version of a lineage in a store.
#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "cli/watch_loop.h"
#include "segue/fleet.h"
#include "segue/publish.h"
#include "segue/token.h"

namespace segue::cli {
namespace {

Json ToJson(const PublishReport& report) {
  Json anchors = Json::array();
  for (const AnchorReport& anchor : report.anchors) anchors.push_back(cli::ToJson(anchor));
  return {{"lineage", report.lineage},
          {"base_version", report.base_version},
          {"target_version", report.target_version},
          {"base_digest", report.base_digest},
          {"target_digest", report.target_digest},
          {"already_published", report.already_published},
          {"committed", report.committed},
          {"model_bytes", report.model_bytes},
          {"payload_bytes", report.payload_bytes},
          {"published_bytes", report.published_bytes},
          {"changed_chunks", report.changed_chunks},
          {"changed_elements", report.changed_elements},
          {"open_s", report.open_s},
          {"encode_s", report.encode_s},
          {"commit_s", report.commit_s},
          {"anchor_s", report.anchor_s},
          {"anchors", anchors},
          {"pruned", report.pruned},
          {"warnings", report.warnings}};
}

std::string Headline(const PublishReport& report) {
  const std::string step = fmt::format("{}: version {} to {}", Printable(report.lineage),
                                       report.base_version, report.target_version);
  if (report.already_published) return step + " was published already, with this very content";
  return step + " published";
}

void PrintText(const PublishReport& report) {
  PrintLine(Headline(report));
  PrintLine(fmt::format("  digest   {}", report.target_digest));
  PrintLine(fmt::format("  changed  {} in {} of {}", Counted(report.changed_elements, "element"),
                        Counted(report.changed_chunks, "chunk"), HumanBytes(report.model_bytes)));
  PrintLine(fmt::format("  payload  {} ({} of the checkpoint); {} written to the store",
                        HumanBytes(report.payload_bytes),
                        HumanShare(static_cast<double>(report.payload_bytes),
                                   static_cast<double>(report.model_bytes)),
                        HumanBytes(report.published_bytes)));
  for (const AnchorReport& anchor : report.anchors) {
    PrintLine(fmt::format("  anchor   {}: version {} to {} in one step of {}",
                          Printable(anchor.name), anchor.version, anchor.target_version,
                          HumanBytes(anchor.payload_bytes)));
  }
  if (!report.pruned.empty()) {
    PrintLine(fmt::format("  pruned   {}, {} to {}", Counted(report.pruned.size(), "version"),
                          report.pruned.front(), report.pruned.back()));
  }
  PrintLine("");
  Table table({"stage", "time"});
  table.Row({"open", HumanSeconds(report.open_s)});
  table.Row({"diff + encode", HumanSeconds(report.encode_s)});
  table.Row({"commit", HumanSeconds(report.commit_s)});
  if (report.anchor_s > 0) table.Row({"anchors", HumanSeconds(report.anchor_s)});
  table.Print();
}

// Several owners (trainer ranks) of one version.
void AddOwnerOptions(CLI::App& verb, PublishOptions& options) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  AsCount(verb.add_option("--owner", options.owner, "This owner's number, from 0"), kMax);
  AsCount(verb.add_option("--owners", options.owner_count, "Count of owners of this version"),
          kMax);
  verb.add_option("--session", options.session, "Name that the owners of one attempt share")
      ->type_name("NAME");
  const auto positive = [](const std::string& text) -> std::string {
    double seconds = 0;
    const bool valid =
        CLI::detail::lexical_cast(text, seconds) && std::isfinite(seconds) && seconds > 0;
    return valid ? "" : fmt::format("expected seconds above 0, found '{}'", text);
  };
  verb.add_option("--owner-timeout", options.owner_timeout_seconds,
                  "Seconds that owner 0 waits for the others (600); they wait for it twice as long")
      ->check(CLI::Validator(positive, "", "seconds"))
      ->type_name("S");
}

struct PublishArguments {
  std::vector<std::string> anchors;  // As they were given.
  WatchOptions watch;
  Cohort cohort;
  double wait_timeout_s = 60;
  double interval_s = 2;
  double settle_s = 5;
};

// A trainer's directory instead of two checkpoints.
void AddWatchOptions(CLI::App& verb, PublishArguments& arguments) {
  const auto seconds = [](const std::string& text) -> std::string {
    double value = 0;
    const bool valid = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1e6;
    return valid ? "" : fmt::format("expected seconds from 0 to 1000000, found '{}'", text);
  };
  const CLI::Validator check(seconds, "", "seconds");
  CLI::Option* const directory =
      verb.add_option("--watch", arguments.watch.directory,
                      "Publish each checkpoint that appears in this directory, until Ctrl-C");
  directory->type_name("DIR");
  verb.add_option("--interval", arguments.interval_s, "Seconds between two looks (2)")
      ->check(check)
      ->needs(directory)
      ->type_name("S");
  verb.add_option("--settle", arguments.settle_s,
                  "Seconds without a change before a checkpoint is complete (5)")
      ->check(check)
      ->needs(directory)
      ->type_name("S");
  verb.add_option("--done-file", arguments.watch.done_file,
                  "Name of a file that every complete checkpoint has")
      ->needs(directory)
      ->type_name("NAME");
}

// Engines that have the version before this ends, or before the next one is published.
void AddWaitOptions(CLI::App& verb, PublishArguments& arguments) {
  CLI::Option* const wait =
      verb.add_option("--wait-for", arguments.cohort.engines,
                      "Wait until the engine whose segue serve listens here, http://HOST:PORT, has "
                      "the version; may be given several times; its token in SEGUE_TOKEN");
  wait->type_name("URL");
  verb.add_option("--wait-timeout", arguments.wait_timeout_s,
                  "Seconds to wait for them before they are reported as behind (60)")
      ->check(CLI::Range(0.0, 1e6))
      ->needs(wait)
      ->type_name("S");
}

// Either two checkpoints or a directory to watch.
Status CheckNamed(const CLI::App& verb) {
  const bool watches = verb.count("--watch") != 0;
  for (const char* option : {"--base", "--target"}) {
    if (watches && verb.count(option) != 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} has no place beside --watch: the directory has the "
                                "checkpoints",
                                option));
    }
    if (!watches && verb.count(option) == 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is required, or --watch", option));
    }
  }
  for (const char* option : {"--version", "--owner", "--owners", "--session"}) {
    if (!watches || verb.count(option) == 0) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} has no place beside --watch", option));
  }
  return {};
}

Result<Report> Watch(const PublishArguments& arguments, bool json) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  };
  WatchLoop loop;
  loop.options = arguments.watch;
  loop.options.settle = milliseconds(arguments.settle_s);
  loop.interval = milliseconds(arguments.interval_s);
  loop.json = json;
  loop.to_json = ToJson;
  loop.cohort = arguments.cohort;
  return RunWatch(loop);
}

}  // namespace

Verb AddPublish(CLI::App& program) {
  CLI::App* const verb =
      program.add_subcommand("publish", "Publish the delta of two checkpoints to a store");
  const auto options = std::make_shared<PublishOptions>();
  const auto arguments = std::make_shared<PublishArguments>();
  verb->add_option("--store", options->store,
                   "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb->add_option("--base", options->base, "Checkpoint of the base version")->type_name("DIR");
  verb->add_option("--target", options->target, "Checkpoint of the target version")
      ->type_name("DIR");
  AddWatchOptions(*verb, *arguments);
  AddWaitOptions(*verb, *arguments);
  verb->add_option("--profile", options->profile,
                   "sparse-zstd (default), snappy-zstd, lz4-zstd or zstd")
      ->type_name("NAME");
  AsCount(verb->add_option("--version", options->version,
                           "Number of the target version; by default the next"));
  verb->add_option("--lineage", options->lineage, "Lineage (default)")->type_name("NAME");
  verb->add_flag("--branch", options->allow_branch,
                 "The trainer went back: start from a version that is not the newest");
  AddOwnerOptions(*verb, *options);
  AsCount(verb->add_option("--retain", options->retain,
                           "Keep this many versions, prune older ones; 0, the default, keeps all"));
  verb->add_option("--anchor", arguments->anchors,
                   "Keep one delta from this version to the newest (base, eval=40); may be given "
                   "several times; it stays with the lineage (segue anchors)")
      ->type_name("NAME[=VERSION]");
  AsSize(verb->add_option("--chunk-size", options->chunk_size,
                          "Size of a chunk, for a new lineage (1MiB); it stays for good"));
  AddSignKey(*verb, options->keys);
  AddPublicKeys(*verb, options->keys);
  AddThreads(*verb, options->threads);
  const auto run = [options, arguments, verb]() -> Result<Report> {
    const Status named = CheckNamed(*verb);
    if (!named.ok()) return named;
    const auto anchors = ParseAnchors(arguments->anchors);
    if (!anchors.ok()) return anchors.status();
    options->anchors = anchors.value();
    const Result<std::string> token = TokenFromEnvironment("SEGUE_TOKEN");
    if (!token.ok()) return token.status();
    Cohort& cohort = arguments->cohort;
    for (const std::string& engine : cohort.engines) {
      const Status valid = CheckEngineUrl(engine);
      if (!valid.ok()) return valid;
    }
    cohort.probe = HttpEngineProbe(token.value());
    cohort.timeout =
        std::chrono::milliseconds(static_cast<std::int64_t>(arguments->wait_timeout_s * 1000));
    if (!arguments->watch.directory.empty()) {
      arguments->watch.publish = *options;
      return Watch(*arguments, verb->count("--json") != 0);
    }
    const Result<PublishReport> report = WithProgress("publish", [&](Progress progress) {
      options->progress = std::move(progress);
      return Publish(*options);
    });
    if (!report.ok()) return report.status();
    // The version is published whatever the engines do.
    const Status waited = cohort.engines.empty()
                              ? Status()
                              : WaitForEngines(cohort, AwaitedOf(report.value(), *options));
    return Report{ToJson(report.value()), [shown = report.value()] { PrintText(shown); },
                  report->warnings, waited};
  };
  return {verb, run};
}

}  // namespace segue::cli
