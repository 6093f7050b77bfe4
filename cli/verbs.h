// SPDX-License-Identifier: Apache-2.0
//
// Verbs: what each verb_NAME.cc gives to main(). Adding a verb declares its options with the parser
// and returns what to run; nothing happens before the whole command line has been understood.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "segue/keys.h"
#include "segue/publish.h"
#include "segue/status.h"

namespace segue::cli {

// What a verb found, for main() to show in the form that was asked for.
struct Report {
  Json json;
  std::function<void()> print_text;
  std::vector<std::string> warnings;
  Status failure;      // What was found is shown, and yet the verb failed.
  bool shown = false;  // The verb has shown its result itself.
};

struct Verb {
  CLI::App* parser = nullptr;
  std::function<Result<Report>()> run;
};

Verb AddDiff(CLI::App& program);
Verb AddPublish(CLI::App& program);
Verb AddApply(CLI::App& program);
Verb AddVerify(CLI::App& program);
Verb AddInspect(CLI::App& program);
Verb AddResolve(CLI::App& program);
Verb AddGenerate(CLI::App& program);
Verb AddBench(CLI::App& program);
Verb AddCheckpoint(CLI::App& program);
Verb AddRestore(CLI::App& program);
Verb AddServe(CLI::App& program);
Verb AddEngine(CLI::App& program);
Verb AddTop(CLI::App& program);
Verb AddStore(CLI::App& program);
Verb AddAnchors(CLI::App& program);
Verb AddExportDiskDelta(CLI::App& program);
Verb AddImportDiskDelta(CLI::App& program);
Verb AddPredict(CLI::App& program);

// "NAME" or "NAME=VERSION", as anchors are set.
Result<std::vector<AnchorWish>> ParseAnchors(const std::vector<std::string>& texts);
Json ToJson(const AnchorReport& anchor);

// Options that several verbs have, with one meaning, and what their values must be.
CLI::Option* AddThreads(CLI::App& verb, unsigned& threads);
// --sign-key, and --public-key as often as there are keys.
void AddSignKey(CLI::App& verb, KeyFiles& keys);
void AddPublicKeys(CLI::App& verb, KeyFiles& keys);
// `option` takes a size with a suffix ("64MiB"), at least `min` bytes.
CLI::Option* AsSize(CLI::Option* option, std::uint64_t min = 0);
// `option` takes decimal digits, at most `max`.
CLI::Option* AsCount(CLI::Option* option, std::uint64_t max = UINT64_MAX);

}  // namespace segue::cli
