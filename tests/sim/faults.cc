// SPDX-License-Identifier: Apache-2.0
//
// Faults: rates from a seed, names of sabotage.
#include "sim/faults.h"

#include <array>
#include <utility>

namespace segue::sim {
namespace {

constexpr std::array<std::pair<Sabotage, std::string_view>, 16> kSabotages = {{
    {Sabotage::kNone, "none"},
    {Sabotage::kSkipProof, "skip-proof"},
    {Sabotage::kApplyTwice, "apply-twice"},
    {Sabotage::kOpenGate, "open-gate"},
    {Sabotage::kNoGate, "no-gate"},
    {Sabotage::kOverwrite, "overwrite"},
    {Sabotage::kWrongVersion, "wrong-version"},
    {Sabotage::kDirtyRefusal, "dirty-refusal"},
    {Sabotage::kDirtyPreflight, "dirty-preflight"},
    {Sabotage::kRot, "rot"},
    {Sabotage::kLateRot, "late-rot"},
    {Sabotage::kWrongFiles, "wrong-files"},
    {Sabotage::kForgetful, "forgetful"},
    {Sabotage::kNeverHeals, "never-heals"},
    {Sabotage::kApart, "apart"},
    {Sabotage::kRealClock, "real-clock"},
}};

// 0 in half of all runs, else up to `max`, small rates as likely as large ones.
double Rate(Random& random, double max) {
  if (random.Below(2) == 0) return 0;
  const double share = random.Uniform();
  return max * share * share;
}

}  // namespace

FaultRates FaultRates::FromSeed(Random& random) {
  FaultRates rates;
  // One run in eight has none: there the checkers must be silent about everything else.
  if (random.Below(8) == 0) return rates;
  rates.refused = Rate(random, 0.2);
  rates.reply_lost = Rate(random, 0.2);
  rates.late = Rate(random, 0.2);
  rates.disk_full = Rate(random, 0.2);
  rates.bit_flip = Rate(random, 0.1);
  rates.truncated = Rate(random, 0.1);
  rates.slow = Rate(random, 0.1);
  rates.list_lag = Rate(random, 0.5);
  rates.read_lag = Rate(random, 0.5);
  rates.crash = Rate(random, 0.03);
  rates.device_slow = Rate(random, 0.1);
  rates.device_dies = Rate(random, 0.05);
  rates.slow_reader = Rate(random, 0.05);
  rates.gate_fails = Rate(random, 0.3);
  return rates;
}

std::string_view SabotageName(Sabotage sabotage) {
  for (const auto& [kind, name] : kSabotages) {
    if (kind == sabotage) return name;
  }
  return "unknown";
}

std::optional<Sabotage> SabotageFromName(std::string_view name) {
  for (const auto& [kind, known] : kSabotages) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

}  // namespace segue::sim
