// SPDX-License-Identifier: Apache-2.0
//
// segue anchors: the named versions that a lineage keeps a delta against; shown, set and removed.
#include <fmt/core.h>

#include <memory>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/anchors.h"

namespace segue::cli {
namespace {

struct AnchorArguments {
  AnchorOptions options;
  std::vector<std::string> set;
};

void PrintText(const std::vector<AnchorReport>& anchors) {
  if (anchors.empty()) return PrintLine("no anchors");
  Table table({"anchor", "version", "leads to", "payload", "changed"});
  for (const AnchorReport& anchor : anchors) {
    table.Row({Printable(anchor.name), std::to_string(anchor.version),
               std::to_string(anchor.target_version), HumanBytes(anchor.payload_bytes),
               HumanCount(anchor.changed_elements)});
  }
  table.Print();
}

}  // namespace

Json ToJson(const AnchorReport& anchor) {
  return {{"anchor", anchor.name},
          {"version", anchor.version},
          {"target_version", anchor.target_version},
          {"digest", anchor.digest},
          {"payload_bytes", anchor.payload_bytes},
          {"changed_chunks", anchor.changed_chunks},
          {"changed_elements", anchor.changed_elements}};
}

Result<std::vector<AnchorWish>> ParseAnchors(const std::vector<std::string>& texts) {
  std::vector<AnchorWish> wishes;
  for (const std::string& text : texts) {
    AnchorWish wish;
    const std::size_t equals = text.find('=');
    wish.name = text.substr(0, equals);
    if (equals != std::string::npos) {
      const std::string number = text.substr(equals + 1);
      std::uint64_t version = 0;
      const bool digits =
          !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || !CLI::detail::lexical_cast(number, version)) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("anchor '{}': expected NAME or NAME=VERSION", text));
      }
      wish.version = version;
    }
    wishes.push_back(std::move(wish));
  }
  return wishes;
}

Verb AddAnchors(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand(
      "anchors", "Show, set or remove the versions that a store keeps a delta against");
  const auto arguments = std::make_shared<AnchorArguments>();
  AnchorOptions& options = arguments->options;
  verb->add_option("--store", options.store,
                   "Store: a directory, http(s)://HOST/PREFIX or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("URL");
  verb->add_option("--lineage", options.lineage, "Lineage ('default')")->type_name("NAME");
  verb->add_option("--set", arguments->set,
                   "Set or move an anchor, or renew it where it is; may be given several times")
      ->type_name("NAME[=VERSION]");
  verb->add_option("--remove", options.remove, "Remove an anchor; may be given several times")
      ->type_name("NAME");
  AddSignKey(*verb, options.keys);
  AddPublicKeys(*verb, options.keys);
  AddThreads(*verb, options.threads);
  const auto run = [arguments]() -> Result<Report> {
    const auto wishes = ParseAnchors(arguments->set);
    if (!wishes.ok()) return wishes.status();
    arguments->options.set = wishes.value();
    const auto anchors =
        WithProgress("anchors", [&](const Progress&) { return UpdateAnchors(arguments->options); });
    if (!anchors.ok()) return anchors.status();
    Json json = {{"anchors", Json::array()}};
    for (const AnchorReport& anchor : anchors.value()) json["anchors"].push_back(ToJson(anchor));
    return Report{json, [shown = anchors.value()] { PrintText(shown); }, {}, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
