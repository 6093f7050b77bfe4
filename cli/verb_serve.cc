// SPDX-License-Identifier: Apache-2.0
//
// segue serve: holds an engine's live weights in shared memory, keeps them in step with a store,
// and answers over HTTP, until SIGINT or SIGTERM. The segment stays, unless --remove was given.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "segue/engine_hooks.h"
#include "segue/server.h"
#include "segue/token.h"

namespace segue::cli {
namespace {

// Bytes a second that are proven while weights serve: a fortieth of a core, and half an hour for
// 445 GB.
constexpr std::uint64_t kScrubRate = 256ull << 20;

// Updates that follow each other faster than this are told as one.
constexpr std::chrono::milliseconds kLookInterval{100};
// What fails again as before is told this often.
constexpr std::chrono::seconds kRepeatInterval{10};
// What the end may take before a store that hangs is looked for.
constexpr std::chrono::seconds kStopTime{1};

struct ServeArguments {
  ServeOptions options;
  std::vector<std::string> with;  // LINEAGE=CHECKPOINT.
  unsigned follow_ms = 0;
  unsigned gate_deadline_ms = 30'000;
  EngineHttpOptions engine;
  bool remove = false;
  bool relay = false;
};

// Reading through other receivers, and serving others.
void AddRelay(CLI::App& verb, ServeArguments& arguments) {
  RelayServeOptions& relay = arguments.options.relay;
  verb.add_flag("--relay", arguments.relay,
                "Pass on to other receivers what was read and proven (127.0.0.1, any free port)");
  verb.add_option("--relay-listen", relay.listen,
                  "The same at this address; any but the loopback needs SEGUE_STORE_TOKEN")
      ->type_name("HOST:PORT");
  verb.add_option("--relay-from", relay.from,
                  "Relay to read payloads from before the store; may be given several times")
      ->type_name("URL");
  verb.add_option("--relay-dir", relay.directory,
                  "Directory for what is kept; by default that of --staging")
      ->type_name("DIR");
  AsSize(verb.add_option("--relay-size", relay.size_max, "Bytes that are kept (16GiB)"), 1);
}

Json Describe(const ReceiverStatus& status) {
  return {{"name", status.name},
          {"lineage", status.lineage},
          {"version", status.version},
          {"digest", status.digest},
          {"model_bytes", status.model_bytes},
          {"pause_s", status.last.pause_s}};
}

Json Describe(const Server& server, const std::vector<ReceiverStatus>& lineages) {
  Json json = Describe(lineages.front());
  json["url"] = server.url();
  json["relay"] = server.relay_url();
  for (const ReceiverStatus& status : lineages) {
    if (lineages.size() > 1) json["lineages"].push_back(Describe(status));
  }
  return json;
}

// Shown as soon as engines may attach: who started this program waits for it.
void Announce(const Server& server, bool json) {
  const std::vector<ReceiverStatus> lineages = server.statuses();
  if (json) {
    PrintJson(Describe(server, lineages));
  } else {
    for (const ReceiverStatus& status : lineages) {
      PrintLine(fmt::format("{}: version {} of {}, {}", Printable(status.name), status.version,
                            Printable(status.lineage), HumanBytes(status.model_bytes)));
      PrintLine(fmt::format("  digest   {}", status.digest));
      if (status.last.pause_s == 0) continue;
      PrintLine(fmt::format("  paused   {}, for the rebuild", HumanSeconds(status.last.pause_s)));
    }
    PrintLine(fmt::format("  control  {}", server.url()));
    if (!server.relay_url().empty()) PrintLine(fmt::format("  relay    {}", server.relay_url()));
    PrintLine("  stop     Ctrl-C");
  }
  std::fflush(stdout);
}

// While it serves: a line for each update of a lineage, and one where something fails, or fails
// otherwise than before; what fails in the same way again is told from time to time, with how
// often. What went wrong is that of all lineages, so one narrator tells it.
class Narrator {
 public:
  enum class Kind { kOnly, kFirst, kFurther };

  Narrator(const ReceiverStatus& began, Kind kind, bool json)
      : kind_(kind), json_(json), version_(began.version), resumed_ns_(began.last.resumed_ns) {}

  // `failures`: of all kinds, since the start.
  void Look(const ReceiverStatus& now, std::uint64_t failures) {
    const UpdateReport& last = now.last;
    const bool updated = now.version != version_ || last.resumed_ns != resumed_ns_;
    // Told once it is over: until then the times are those of the update before.
    const bool over = last.target_version == now.version && now.ready;
    if (updated && over) {
      ShowUpdate(now);
      version_ = now.version;
      resumed_ns_ = last.resumed_ns;
    }
    if (kind_ == Kind::kFurther) return;
    // In the middle of a pause it says only that there is one.
    const bool in_pause =
        now.state == ReceiverState::kApplying || now.state == ReceiverState::kResuming;
    if (in_pause) return;
    if (now.message == message_) {
      if (std::chrono::steady_clock::now() - told_at_ >= kRepeatInterval) TellRepeats(failures);
      return;
    }
    // The last one is told by its own message.
    TellRepeats(failures - (now.message.empty() || failures == 0 ? 0 : 1));
    message_ = now.message;
    told_ = failures;
    told_at_ = std::chrono::steady_clock::now();
    if (!message_.empty()) PrintWarnings("serve", {message_});
  }

  // What is still to be told of what failed as before.
  void TellRepeats(std::uint64_t failures) {
    if (message_.empty() || failures <= told_) return;
    const std::uint64_t more = failures - told_;
    PrintWarnings("serve", {fmt::format("{} more {} the same: {}", more,
                                        more == 1 ? "failure" : "failures", message_)});
    told_ = failures;
    told_at_ = std::chrono::steady_clock::now();
  }

 private:
  void ShowUpdate(const ReceiverStatus& now) const {
    const UpdateReport& last = now.last;
    if (json_) {
      Json json = {{"version", now.version},
                   {"base_version", last.base_version},
                   {"steps", last.steps},
                   {"payload_bytes", last.payload_bytes},
                   {"changed_elements", last.changed_elements},
                   {"pause_s", last.pause_s}};
      if (kind_ != Kind::kOnly) json["lineage"] = now.lineage;
      PrintJson(json);
      (void)std::fflush(stdout);
      return;
    }
    const std::string of = kind_ == Kind::kOnly ? "" : Printable(now.lineage) + ": ";
    PrintNote("serve",
              fmt::format("{}version {} to {}, payload {}, pause {}", of, last.base_version,
                          now.version, HumanBytes(last.payload_bytes), HumanSeconds(last.pause_s)));
  }

  const Kind kind_;
  const bool json_;
  std::uint64_t version_;
  std::uint64_t resumed_ns_;
  std::string message_;
  // Failures of which the log knows, and since when.
  std::uint64_t told_ = 0;
  std::chrono::steady_clock::time_point told_at_;
};

Status AddHooks(ServeArguments& arguments) {
  if (arguments.engine.url.empty()) return {};
  Result<std::string> token = TokenFromEnvironment("SEGUE_ENGINE_TOKEN");
  if (!token.ok()) return token.status();
  arguments.engine.token = std::move(token).value();
  Result<EngineHooks> hooks = MakeHttpHooks(arguments.engine);
  if (!hooks.ok()) return hooks.status();
  arguments.options.receiver.hooks = std::move(hooks).value();
  return {};
}

// What is served for the engine's own lineage holds for further ones, but for their names.
Status AddFurther(ServeArguments& arguments) {
  const ReceiverOptions& first = arguments.options.receiver;
  for (const std::string& with : arguments.with) {
    const std::size_t equals = with.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == with.size()) {
      return InvalidArgument("--with " + with + ": expected LINEAGE=CHECKPOINT");
    }
    ReceiverOptions lineage = first;
    lineage.hooks = {};
    lineage.lineage = with.substr(0, equals);
    lineage.checkpoint = with.substr(equals + 1);
    lineage.name = first.name + "." + lineage.lineage;
    arguments.options.further.push_back(std::move(lineage));
  }
  return {};
}

std::vector<Narrator> MakeNarrators(const std::vector<ReceiverStatus>& lineages, bool json) {
  std::vector<Narrator> narrators;
  for (const ReceiverStatus& status : lineages) {
    const auto kind = lineages.size() == 1 ? Narrator::Kind::kOnly
                      : narrators.empty()  ? Narrator::Kind::kFirst
                                           : Narrator::Kind::kFurther;
    narrators.emplace_back(status, kind, json);
  }
  return narrators;
}

Status RemoveSegments(const ServeOptions& options) {
  SEGUE_RETURN_IF_ERROR(RemoveSegment(options.receiver.name));
  for (const ReceiverOptions& lineage : options.further) {
    SEGUE_RETURN_IF_ERROR(RemoveSegment(lineage.name));
  }
  return {};
}

std::uint64_t Failures(const Server& server) {
  const ReceiverCounts counts = server.counts();
  return counts.look_failures + counts.update_failures + counts.pause_failures;
}

// What happens, until it is to stop.
void Tell(const Server& server, bool json) {
  Announce(server, json);
  std::vector<Narrator> narrators = MakeNarrators(server.statuses(), json);
  while (!StopRequested()) {
    WaitForStop(kLookInterval);
    try {
      const std::uint64_t failures = Failures(server);
      const std::vector<ReceiverStatus> now = server.statuses();
      for (std::size_t i = 0; i < now.size(); ++i) narrators[i].Look(now[i], failures);
    } catch (const std::bad_alloc&) {  // It serves on; there may be memory at the next look.
    }
  }
  narrators.front().TellRepeats(Failures(server));
}

// Once it is to stop, and while it cannot: a file system that hangs lets nobody go.
class StuckGuard {
 public:
  StuckGuard(const Server& server, const ServeArguments& arguments)
      : thread_([&server, &arguments](const std::stop_token& stop) {
          auto asked = std::chrono::steady_clock::time_point::max();
          while (!stop.stop_requested()) {
            std::this_thread::sleep_for(kLookInterval);
            const auto now = std::chrono::steady_clock::now();
            if (!StopRequested()) continue;
            asked = std::min(asked, now);
            if (now - asked >= kStopTime && server.IsStuck()) End(arguments);
          }
        }) {}

 private:
  [[noreturn]] static void End(const ServeArguments& arguments) {
    if (arguments.remove) (void)RemoveSegments(arguments.options);
    (void)std::fputs(
        "segue serve: the store's file system does not answer: ended without waiting for it "
        "(unavailable)\n",
        stderr);
    ::_exit(ExitCode(StatusCode::kUnavailable));
  }

  std::jthread thread_;
};

// A stop meanwhile ends what waits for the engine, and so the start.
Status AwaitReady(Server& server) {
  while (!server.IsSettled(kLookInterval)) {
    if (StopRequested()) server.Stop();
  }
  return server.WaitReady();
}

// Ours, and that of the store and of relays.
Status TakeTokens(ServeOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(options.token, TokenFromEnvironment("SEGUE_TOKEN"));
  SEGUE_ASSIGN_OR_RETURN(options.relay.token, TokenFromEnvironment("SEGUE_STORE_TOKEN"));
  return {};
}

Result<Report> Serve(ServeArguments& arguments, bool json) {
  CatchStopSignals();
  ServeOptions& options = arguments.options;
  options.receiver.gate_deadline = std::chrono::milliseconds(arguments.gate_deadline_ms);
  if (arguments.follow_ms != 0) options.follow = std::chrono::milliseconds(arguments.follow_ms);
  SEGUE_RETURN_IF_ERROR(TakeTokens(options));
  if (arguments.relay && options.relay.listen.empty()) options.relay.listen = "127.0.0.1:0";
  SEGUE_RETURN_IF_ERROR(AddFurther(arguments));
  SEGUE_RETURN_IF_ERROR(AddHooks(arguments));
  const Result<std::unique_ptr<Server>> server = Server::Start(options);
  if (!server.ok()) return server.status();
  const StuckGuard guard(*server.value(), arguments);
  const Status ready =
      WithProgress("serve", [&](const Progress&) { return AwaitReady(*server.value()); });
  if (!ready.ok()) return ready;
  // After a stop in the start there is nothing to tell of any more.
  if (!StopRequested()) Tell(*server.value(), json);
  server.value()->Stop();
  if (arguments.remove) SEGUE_RETURN_IF_ERROR(RemoveSegments(options));
  Report report;
  report.shown = true;
  return report;
}

// The engine's own control, for one that does not enter the gate.
void AddEngine(CLI::App& verb, EngineHttpOptions& engine) {
  CLI::Option* const url = verb.add_option(
      "--engine-url", engine.url,
      "The engine's own HTTP control: paused, flushed and continued around each update; its token, "
      "if any, in SEGUE_ENGINE_TOKEN");
  url->type_name("URL");
  CLI::Option* const kind =
      verb.add_option("--engine", engine.kind, "What listens there: sglang or vllm");
  kind->type_name("KIND")->needs(url);
  url->needs(kind);
  verb.add_option("--engine-caches", engine.caches, "vLLM: which caches to reset (kv,mm,encoder)")
      ->delimiter(',')
      ->type_name("LIST")
      ->needs(url);
}

}  // namespace

Verb AddServe(CLI::App& program) {
  CLI::App* const verb =
      program.add_subcommand("serve", "Hold an engine's live weights and keep them in step");
  const auto arguments = std::make_shared<ServeArguments>();
  ReceiverOptions& receiver = arguments->options.receiver;
  verb->add_option("--store", receiver.store,
                   "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb->add_option("--checkpoint", receiver.checkpoint,
                   "What the engine starts from and is rebuilt from")
      ->required()
      ->type_name("DIR");
  verb->add_option("--name", receiver.name, "Of the shared memory that engines attach to")
      ->required()
      ->type_name("NAME");
  verb->add_option("--lineage", receiver.lineage, "Lineage ('default')")->type_name("NAME");
  verb->add_option("--with", arguments->with,
                   "A further lineage of the engine, a draft model say, in shared memory "
                   "NAME.LINEAGE: all are moved together; may be given several times")
      ->allow_extra_args(false)
      ->type_name("LINEAGE=DIR");
  verb->add_flag("--same-version", arguments->options.same_version,
                 "With --with: the newest is the highest number that all lineages offer");
  AddPublicKeys(*verb, receiver.keys);
  verb->add_option("--listen", arguments->options.listen,
                   "Address for control over HTTP (127.0.0.1:0, any free port); any but the "
                   "loopback needs a token in SEGUE_TOKEN")
      ->type_name("HOST:PORT");
  CLI::Option* const follow =
      verb->add_option("--follow", arguments->follow_ms,
                       "Take newer versions as they appear, looking every N milliseconds");
  AsCount(follow, std::numeric_limits<unsigned>::max())
      ->check(CLI::Range(1u, std::numeric_limits<unsigned>::max()));
  AsCount(verb->add_option("--version", receiver.version,
                           "Start at this version, and stay there until asked otherwise; by "
                           "default the newest"))
      ->excludes(follow);
  AsCount(verb->add_option("--gate-deadline", arguments->gate_deadline_ms,
                           "Milliseconds in which engines must leave the gate (30000)"),
          std::numeric_limits<unsigned>::max());
  receiver.scrub_rate = kScrubRate;
  AsSize(verb->add_option("--scrub", receiver.scrub_rate,
                          "Prove all weights again and again, reading this much a second "
                          "(256MiB; 0 for never)"));
  AsCount(verb->add_option("--background-threads", receiver.background_threads,
                           "Threads that stage while the engine serves (1)"),
          std::numeric_limits<unsigned>::max());
  verb->add_option("--staging", receiver.staging,
                   "Directory for payload files; by default the system's temporary one")
      ->type_name("DIR");
  AddEngine(*verb, arguments->engine);
  verb->add_option(
          "--pull-root", arguments->options.pull_roots,
          "Allow POST /pull_weights (disk deltas of Miles and slime) below this directory; "
          "may be given several times")
      ->allow_extra_args(false)
      ->type_name("DIR");
  verb->add_flag("--rebuild", receiver.rebuild,
                 "Start from the checkpoint whatever the shared memory holds");
  verb->add_flag("--remove", arguments->remove, "Remove the shared memory at the end");
  AddRelay(*verb, *arguments);
  AddThreads(*verb, receiver.threads);
  const auto run = [arguments, verb]() -> Result<Report> {
    return Serve(*arguments, verb->count("--json") != 0);
  };
  return {verb, run};
}

}  // namespace segue::cli
