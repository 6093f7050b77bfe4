// SPDX-License-Identifier: Apache-2.0
//
// segue store: serves a store in a directory over HTTP until SIGINT or SIGTERM.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "cli/output.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "segue/store_server.h"
#include "segue/token.h"

namespace segue::cli {
namespace {

// A token and an end of line.
constexpr std::streamsize kTokenFileSizeMax = 4096;

struct StoreArguments {
  StoreServerOptions options;
  std::string token_file;
};

Result<std::string> ReadToken(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("the token file '" + path + "' cannot be opened");
  std::string text(kTokenFileSizeMax, '\0');
  file.read(text.data(), kTokenFileSizeMax);
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto is_space = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  if (text.empty()) return InvalidArgument("the token file '" + path + "' is empty");
  return text;
}

Result<Report> Serve(StoreArguments& arguments, bool json) {
  CatchStopSignals();
  StoreServerOptions& options = arguments.options;
  Result<std::string> token = arguments.token_file.empty()
                                  ? TokenFromEnvironment("SEGUE_STORE_TOKEN")
                                  : ReadToken(arguments.token_file);
  if (!token.ok()) return token.status();
  options.token = std::move(token).value();
  const auto server = StoreServer::Start(options);
  if (!server.ok()) return server.status();
  const std::string url = server.value()->url();
  const bool writable = !options.token.empty();
  if (json) {
    PrintJson({{"url", url}, {"directory", options.directory}, {"writable", writable}});
  } else {
    PrintLine(fmt::format("{}: {}", url, Printable(options.directory)));
    PrintLine(writable ? "  writes   with the token" : "  writes   none, there is no token");
    PrintLine("  stop     Ctrl-C");
  }
  std::fflush(stdout);
  WaitForStop();
  server.value()->Stop();
  Report report;
  report.shown = true;
  return report;
}

}  // namespace

Verb AddStore(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand("store", "Serve a store directory over HTTP");
  const auto arguments = std::make_shared<StoreArguments>();
  StoreServerOptions& options = arguments->options;
  verb->add_option("--dir", options.directory, "The store; made where there is a token")
      ->required()
      ->type_name("DIR");
  verb->add_option("--listen", options.listen,
                   "Address (127.0.0.1:0, any free port); any but the loopback needs a token")
      ->type_name("HOST:PORT");
  verb->add_option("--token-file", arguments->token_file,
                   "File with the token that writes need; by default SEGUE_STORE_TOKEN has it, "
                   "and without one nobody can write")
      ->type_name("FILE");
  verb->add_flag("--public-read", options.public_read,
                 "Reads need no token, wherever this listens");
  const auto run = [arguments, verb]() -> Result<Report> {
    return Serve(*arguments, verb->count("--json") != 0);
  };
  return {verb, run};
}

}  // namespace segue::cli
