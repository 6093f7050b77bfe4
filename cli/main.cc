// SPDX-License-Identifier: Apache-2.0
//
// segue, the command line program: finds the verb, runs it, and turns its outcome into an exit
// code. Results go to stdout, errors and warnings to stderr. It sees the public headers alone, so
// whatever it can do, a program that links Segue can do.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/output.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "segue/device_memory.h"

namespace segue::cli {

CLI::Option* AsSize(CLI::Option* option, std::uint64_t min) {
  const auto to_bytes = [min](std::string& text) -> std::string {
    const Result<std::uint64_t> size = ParseSize(text);
    if (!size.ok()) return size.status().message();
    if (size.value() < min) return fmt::format("expected at least {} bytes, found '{}'", min, text);
    text = fmt::format("{}", size.value());
    return {};
  };
  return option->transform(CLI::Validator(to_bytes, "", "size"))->type_name("SIZE");
}

CLI::Option* AsCount(CLI::Option* option, std::uint64_t max) {
  // Leading zeros go: the parser would take them for octal.
  const auto to_decimal = [max](std::string& text) -> std::string {
    const Result<std::uint64_t> count = ParseCount(text, max);
    if (!count.ok()) return count.status().message();
    text = fmt::format("{}", count.value());
    return {};
  };
  return option->transform(CLI::Validator(to_decimal, "", "count"))->type_name("N");
}

CLI::Option* AddThreads(CLI::App& verb, unsigned& threads) {
  return AsCount(verb.add_option("--threads", threads, "Threads; 0, the default, is every core"),
                 std::numeric_limits<unsigned>::max());
}

void AddSignKey(CLI::App& verb, KeyFiles& keys) {
  verb.add_option("--sign-key", keys.sign_key,
                  "Ed25519 private key (PEM) that signs what is published")
      ->envname("SEGUE_SIGN_KEY")
      ->type_name("FILE");
}

void AddPublicKeys(CLI::App& verb, KeyFiles& keys) {
  verb.add_option("--public-key", keys.public_keys,
                  "Ed25519 public key (PEM); what none of them has signed is refused. May be "
                  "given several times")
      ->envname("SEGUE_PUBLIC_KEY")
      ->allow_extra_args(false)
      ->type_name("FILE");
}

namespace {

constexpr const char* kFooter = R"(SIZE is bytes, or a number with kB, MB, GB, TB (powers of 1000),
or KiB, MiB, GiB, TiB or K, M, G, T (powers of 1024).

Exit codes:
   0  ok
   2  invalid_argument    the call makes no sense: fix it
   3  not_found           no such version, tensor or file: look again
   4  version_mismatch    not the base that is needed: get another delta
   5  corruption          bytes disagree with their digest or format: fetch again, report
   6  unsupported         unknown format version, codec or feature
   7  resource_exhausted  a named limit, memory or space: free or lower, then retry
   8  unavailable         busy, or input/output failed: retry later
   9  tainted             weights may be half changed: segue resolve, or rebuild; never retry
  10  internal            a bug: please report it

With --json the result is one JSON object on stdout; an error is
{"error": {"code": "not_found", "message": "..."}}, beside the sentence on stderr.)";

std::string VerbNames(const std::vector<Verb>& verbs) {
  std::string names;
  for (const Verb& verb : verbs) names += (names.empty() ? "" : ", ") + verb.parser->get_name();
  return names;
}

const Verb* FindParsed(const std::vector<Verb>& verbs) {
  const auto parsed = [](const Verb& verb) { return verb.parser->parsed(); };
  const auto found = std::find_if(verbs.begin(), verbs.end(), parsed);
  return found == verbs.end() ? nullptr : &*found;
}

// The parser's own sentence about what is no number says neither what was expected nor, apart from
// it, what was found.
std::string InOurWords(const CLI::ParseError& error) {
  constexpr std::string_view kBegin = "Could not convert: ";
  constexpr std::string_view kBetween = " = ";
  const std::string_view said = error.what();
  const std::size_t between = said.find(kBetween);
  if (!said.starts_with(kBegin) || between == std::string_view::npos) return std::string(said);
  return fmt::format("{}: expected a number, found '{}'",
                     said.substr(kBegin.size(), between - kBegin.size()),
                     said.substr(between + kBetween.size()));
}

// What was wrong with a command line, as one sentence.
Status UsageError(const CLI::ParseError& error, const std::vector<Verb>& verbs,
                  const std::vector<std::string>& arguments) {
  const Verb* const verb = FindParsed(verbs);
  if (verb == nullptr) {
    const auto word = std::find_if(arguments.begin(), arguments.end(),
                                   [](const std::string& text) { return text != "--json"; });
    const std::string found = word == arguments.end() ? "nothing" : "'" + *word + "'";
    return InvalidArgument(
        fmt::format("expected a verb ({}), found {}; see segue --help", VerbNames(verbs), found));
  }
  return InvalidArgument(
      fmt::format("{}; see segue {} --help", InOurWords(error), verb->parser->get_name()));
}

// Values that the shell has made of something else. Nothing at all ("$UNSET"): no option means
// that, least of all --output, without which apply works in place. A path that begins with '~' was
// to be the home directory and was left as it is (in "--store=~/x", "dir:~/x" and quotes): a
// directory of that name is never what was meant.
Status CheckShell(const CLI::App& parser) {
  for (const CLI::Option* const option : parser.get_options()) {
    for (const std::string& value : option->results()) {
      if (!value.empty()) continue;
      return InvalidArgument(option->get_name() +
                             ": expected a value, found an empty one (a shell variable not set?)");
    }
    const std::string type = option->get_type_name();
    const bool path = option->get_positional() || type == "DIR" || type == "FILE" || type == "URL";
    if (!path) continue;
    for (const std::string& value : option->results()) {
      const std::string place = value.starts_with("dir:") ? value.substr(4) : value;
      if (place != "~" && !place.starts_with("~/")) continue;
      return InvalidArgument(
          fmt::format("{}: found '{}', in which the shell did not expand '~'; write $HOME instead",
                      option->get_name(), value));
    }
  }
  return {};
}

// A file that a variable of the environment names. One that is set is meant: the parser takes an
// empty one for none, and nothing would be verified, or signed, without a word.
Status CheckEnvironment(const CLI::App& parser) {
  for (const CLI::Option* const option : parser.get_options()) {
    const std::string variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr ||
        std::string_view(value).find_first_not_of(" \t\r\n") != std::string_view::npos) {
      continue;
    }
    return InvalidArgument("the environment variable " + variable + " is set and empty, expected " +
                           "what " + option->get_name() + " takes; unset it where none is wanted");
  }
  return {};
}

// Standard output last: a full disk or a closed pipe loses the result, and that is a failure.
Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status();
  return Unavailable("standard output: the result could not be written to it");
}

// Shows what the verb found or why it failed, and gives the exit code.
int Show(std::string_view verb, const Result<Report>& result, bool json) {
  Status failure = result.ok() ? result->failure : result.status();
  Json shown = result.ok() ? result->json : Json::object();
  if (!failure.ok()) shown["error"] = ErrorToJson(failure);
  if (result.ok()) PrintWarnings(verb, result->warnings);
  if (result.ok() && result->shown) return ExitCode(FlushOutput().code());
  if (json) {
    PrintJson(shown);
  } else if (result.ok() && result->print_text) {
    result->print_text();
  }
  const Status flushed = FlushOutput();
  if (failure.ok()) failure = flushed;
  if (!failure.ok()) PrintError(verb, failure);
  return ExitCode(failure.code());
}

std::vector<Verb> AddVerbs(CLI::App& program) {
  return {AddDiff(program),
          AddPublish(program),
          AddApply(program),
          AddVerify(program),
          AddInspect(program),
          AddResolve(program),
          AddGenerate(program),
          AddBench(program),
          AddCheckpoint(program),
          AddRestore(program),
          AddServe(program),
          AddEngine(program),
          AddTop(program),
          AddStore(program),
          AddAnchors(program),
          AddExportDiskDelta(program),
          AddImportDiskDelta(program),
          AddPredict(program)};
}

int Run(const std::vector<std::string>& arguments) {
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  TurnSignalsIntoErrors(json);
  CLI::App program("Segue: bit-exact weight deltas from a trainer to inference engines", "segue");
  program.set_version_flag("--version", std::string("segue " SEGUE_VERSION) +
                                            (BuiltWithCuda() ? ", with CUDA" : ", without CUDA"));
  program.require_subcommand(1);
  const std::vector<Verb> verbs = AddVerbs(program);
  for (const Verb& verb : verbs) {
    verb.parser->add_flag("--json")->description("Print the result as one JSON object");
    verb.parser->footer("Sizes, exit codes and errors: segue --help");
  }
  program.footer(kFooter);
  try {
    // The parser takes its arguments last first.
    program.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& success) {  // --help, --version
    program.exit(success);
    return Show("", Report(), false);
  } catch (const CLI::ParseError& error) {
    const Verb* const verb = FindParsed(verbs);
    const std::string name = verb == nullptr ? "" : verb->parser->get_name();
    return Show(name, UsageError(error, verbs, arguments), json);
  }
  const Verb* const verb = FindParsed(verbs);
  Status sound = CheckShell(*verb->parser);
  if (sound.ok()) sound = CheckEnvironment(*verb->parser);
  return Show(verb->parser->get_name(), sound.ok() ? verb->run() : sound, json);
}

}  // namespace
}  // namespace segue::cli

int main(int argc, char** argv) {
  using segue::cli::ExitCode;
  using segue::cli::PrintError;
  try {
    return segue::cli::Run(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
  } catch (const std::bad_alloc&) {
    PrintError("", segue::ResourceExhausted("memory: no more could be allocated"));
    return ExitCode(segue::StatusCode::kResourceExhausted);
  } catch (const std::system_error& error) {
    PrintError("", segue::ResourceExhausted(std::string("threads: ") + error.what()));
    return ExitCode(segue::StatusCode::kResourceExhausted);
  } catch (const std::exception& error) {
    PrintError("", segue::Internal(error.what()));
    return ExitCode(segue::StatusCode::kInternal);
  }
}
