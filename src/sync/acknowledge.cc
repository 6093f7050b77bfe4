// SPDX-License-Identifier: Apache-2.0
//
// Acknowledgement: engines that have answered once as they should are not asked again.
#include "sync/acknowledge.h"

#include <iterator>
#include <map>

namespace segue {
namespace {

// What keeps the engine from counting; empty where it has the version.
std::string WhyNot(const Result<EngineHolds>& answer, const std::string& lineage,
                   std::uint64_t version) {
  if (!answer.ok()) return answer.status().message();
  const auto further = answer->further.find(lineage);
  const bool is_further = further != answer->further.end();
  if (!is_further && answer->lineage != lineage) {
    return "serves lineage '" + answer->lineage + "'";
  }
  const std::uint64_t held = is_further ? further->second : answer->version;
  if (held < version) return "serves version " + std::to_string(held);
  return answer->ready ? "" : "is not ready";
}

}  // namespace

Status WaitForCohort(const Cohort& cohort, const std::string& lineage, std::uint64_t version,
                     Environment& environment) {
  if (!cohort.probe) return InvalidArgument("a cohort needs a way to ask its engines");
  std::map<std::string, std::string> behind;
  for (const std::string& engine : cohort.engines) behind.emplace(engine, "");
  const auto deadline = environment.Now() + cohort.timeout;
  for (;;) {
    for (auto engine = behind.begin(); engine != behind.end();) {
      engine->second = WhyNot(cohort.probe(engine->first), lineage, version);
      engine = engine->second.empty() ? behind.erase(engine) : std::next(engine);
    }
    if (behind.empty()) return {};
    if (environment.Now() + cohort.interval > deadline) break;
    environment.Sleep(cohort.interval, {});
  }
  std::string text;
  for (const auto& [engine, why] : behind) {
    text += (text.empty() ? "" : "; ") + ("engine '" + engine + "': " + why);
  }
  return Unavailable("version " + std::to_string(version) + " of lineage '" + lineage +
                     "' is not acknowledged by " + std::to_string(behind.size()) + " of " +
                     std::to_string(cohort.engines.size()) + " engines: " + text);
}

}  // namespace segue
