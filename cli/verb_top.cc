// SPDX-License-Identifier: Apache-2.0
//
// segue top: a live view of a store's lineages and of engines, or one look for scripts.
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "cli/output.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "segue/fleet.h"
#include "segue/token.h"

namespace segue::cli {
namespace {

struct TopArguments {
  FleetOptions options;
  std::string token_file;
  unsigned interval_ms = 2'000;
  bool once = false;
};

Json ToJson(const LineageView& lineage) {
  return {{"lineage", lineage.lineage},
          {"error", lineage.error},
          {"origin_version", lineage.origin_version},
          {"newest", lineage.newest},
          {"versions", lineage.versions},
          {"digest", lineage.digest},
          {"model_bytes", lineage.model_bytes},
          {"payload_bytes", lineage.payload_bytes},
          {"changed_elements", lineage.changed_elements},
          {"anchors", lineage.anchors}};
}

Json ToJson(const LineageAtEngine& held) {
  return {{"lineage", held.lineage},
          {"version", held.version},
          {"digest", held.digest},
          {"target_version", held.target_version},
          {"pause_s", held.pause_s},
          {"other", held.is_other},
          {"lag", held.lag_known ? Json(held.lag) : Json(nullptr)}};
}

// The first lineage's fields are the engine's own as well.
Json ToJson(const EngineView& engine) {
  Json json = {{"url", engine.url},           {"reachable", engine.reachable},
               {"message", engine.message},   {"engine_id", engine.engine_id},
               {"hostname", engine.hostname}, {"state", engine.state},
               {"ready", engine.ready},       {"lineages", Json::array()}};
  json.update(ToJson(engine.lineages.empty() ? LineageAtEngine() : engine.lineages.front()));
  for (const LineageAtEngine& held : engine.lineages) json["lineages"].push_back(ToJson(held));
  return json;
}

Json ToJson(const FleetView& view) {
  Json json = {
      {"store_error", view.store_error}, {"lineages", Json::array()}, {"engines", Json::array()}};
  for (const LineageView& lineage : view.lineages) json["lineages"].push_back(ToJson(lineage));
  for (const EngineView& engine : view.engines) json["engines"].push_back(ToJson(engine));
  return json;
}

std::string VersionRange(const LineageView& lineage) {
  if (lineage.versions.empty()) return "none";
  if (lineage.versions.size() == 1) return std::to_string(lineage.newest);
  return fmt::format("{} to {} ({} in all)", lineage.versions.front(), lineage.newest,
                     lineage.versions.size());
}

std::string JoinedNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + Printable(name);
  return text;
}

void ShowLineages(const FleetView& view) {
  if (!view.store_error.empty()) {
    PrintLine("  store: " + Printable(view.store_error));
    PrintLine("");
    return;
  }
  if (view.lineages.empty()) return;
  Table table({"lineage", "newest", "on offer", "model", "payload", "changed", "anchors"});
  for (const LineageView& lineage : view.lineages) {
    if (!lineage.error.empty()) {
      table.Row({Printable(lineage.lineage), "?", "?", "?", "?", "?", "?"});
      continue;
    }
    table.Row({Printable(lineage.lineage), std::to_string(lineage.newest), VersionRange(lineage),
               HumanBytes(lineage.model_bytes), HumanBytes(lineage.payload_bytes),
               HumanCount(lineage.changed_elements), JoinedNames(lineage.anchors)});
  }
  table.Print();
  for (const LineageView& lineage : view.lineages) {
    if (!lineage.error.empty()) {
      PrintLine(fmt::format("  {}: {}", Printable(lineage.lineage), Printable(lineage.error)));
    }
  }
  PrintLine("");
}

std::string StateOf(const EngineView& engine) {
  if (!engine.reachable) return "unreachable";
  const std::string state = Printable(engine.state);
  return engine.ready ? state : state + ", not ready";
}

std::string VersionOf(const LineageAtEngine& held) {
  const bool moves = held.target_version != held.version && held.target_version != 0;
  return moves ? fmt::format("{} > {}", held.version, held.target_version)
               : std::to_string(held.version);
}

std::string LagOf(const LineageAtEngine& held) {
  if (held.is_other) return "other";
  return held.lag_known ? std::to_string(held.lag) : "?";
}

void ShowEngines(const FleetView& view) {
  if (view.engines.empty()) return;
  Table table({"engine", "state", "lineage", "version", "lag", "pause"});
  for (const EngineView& engine : view.engines) {
    if (!engine.reachable) {
      table.Row({Printable(engine.url), StateOf(engine), "", "", "", ""});
      continue;
    }
    for (const LineageAtEngine& held : engine.lineages) {
      table.Row({Printable(engine.engine_id.empty() ? engine.url : engine.engine_id),
                 StateOf(engine), Printable(held.lineage), VersionOf(held), LagOf(held),
                 held.pause_s > 0 ? HumanSeconds(held.pause_s) : ""});
    }
  }
  table.Print();
  for (const EngineView& engine : view.engines) {
    for (const LineageAtEngine& held : engine.lineages) {
      if (!held.is_other) continue;
      PrintLine(fmt::format("  {}: version {} with digest {} is none of the store's '{}'",
                            Printable(engine.url), held.version, Printable(held.digest),
                            Printable(held.lineage)));
    }
    if (engine.message.empty()) continue;
    PrintLine(fmt::format("  {}: {}", Printable(engine.url), Printable(engine.message)));
  }
}

void ShowText(const FleetView& view) {
  ShowLineages(view);
  ShowEngines(view);
  if (view.engines.empty() && view.lineages.empty() && view.store_error.empty()) {
    PrintLine("  nothing yet: the store has no lineage");
  }
}

Status ReadToken(TopArguments& arguments) {
  if (arguments.token_file.empty()) {
    Result<std::string> token = TokenFromEnvironment("SEGUE_TOKEN");
    if (token.ok()) arguments.options.token = std::move(token).value();
    return token.status();
  }
  std::ifstream file(arguments.token_file);
  std::string token((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (!file || token.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--token-file '{}' holds no token", arguments.token_file));
  }
  arguments.options.token = token;
  return CheckToken(token).WithContext(fmt::format("--token-file '{}'", arguments.token_file));
}

// A terminal is overwritten in place; anything else gets one view after the other.
Result<Report> Follow(const TopArguments& arguments, bool json) {
  CatchStopSignals();
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0 && !json;
  while (!StopRequested()) {
    const Result<FleetView> view = ReadFleet(arguments.options);
    if (!view.ok()) return view.status();
    if (is_terminal) (void)std::fputs("\x1b[H\x1b[J", stdout);
    if (json) {
      PrintJson(ToJson(view.value()));
    } else {
      ShowText(view.value());
      PrintLine(is_terminal ? "  Ctrl-C ends this view" : "");
    }
    (void)std::fflush(stdout);
    WaitForStop(std::chrono::milliseconds(arguments.interval_ms));
  }
  Report report;
  report.shown = true;
  return report;
}

Result<Report> Top(TopArguments& arguments, bool json) {
  const Status token = ReadToken(arguments);
  if (!token.ok()) return token;
  if (arguments.options.store.empty() && arguments.options.engines.empty()) {
    return Status(StatusCode::kInvalidArgument, "--store or --engine is required");
  }
  if (!arguments.once) return Follow(arguments, json);
  const Result<FleetView> view = ReadFleet(arguments.options);
  if (!view.ok()) return view.status();
  Report report{ToJson(view.value()), [shown = view.value()] { ShowText(shown); }, {}, Status()};
  if (!view->store_error.empty()) {
    report.failure = Status(StatusCode::kUnavailable, view->store_error);
  }
  return report;
}

}  // namespace

Verb AddTop(CLI::App& program) {
  CLI::App* const verb =
      program.add_subcommand("top", "Watch lineages and engines: versions, states, pauses, lag");
  const auto arguments = std::make_shared<TopArguments>();
  verb->add_option("--store", arguments->options.store, "Store whose lineages are shown")
      ->type_name("URL");
  verb->add_option("--lineage", arguments->options.lineages,
                   "Lineage; may be given several times; by default all")
      ->type_name("NAME");
  verb->add_option("--engine", arguments->options.engines,
                   "Where segue serve listens, http://HOST:PORT; may be given several times")
      ->type_name("URL");
  AddPublicKeys(*verb, arguments->options.keys);
  verb->add_option("--token-file", arguments->token_file,
                   "File with the engines' token; by default SEGUE_TOKEN")
      ->type_name("FILE");
  AsCount(verb->add_option("--interval", arguments->interval_ms,
                           "Milliseconds between two views (2000)"),
          std::numeric_limits<unsigned>::max());
  verb->add_flag("--once", arguments->once, "One view, and end");
  const auto run = [arguments, verb]() -> Result<Report> {
    return Top(*arguments, verb->count("--json") != 0);
  };
  return {verb, run};
}

}  // namespace segue::cli
