// SPDX-License-Identifier: Apache-2.0
//
// Fleet: what a store offers and what each of several engines says of itself, read at one moment.
// It asks the endpoints of docs/protocol.md, section 8, and changes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "segue/publisher.h"
#include "segue/status.h"

namespace segue {

struct FleetOptions {
  std::string store = {};                  // Empty: none is looked at.
  std::vector<std::string> lineages = {};  // Empty: every one of the store.
  std::vector<std::string> engines = {};   // "http://HOST:PORT".
  std::string token = {};                  // Bearer token for engines; may be empty.
};

struct LineageView {
  std::string lineage;
  std::string error;  // Why the rest is not known; empty when it is.
  std::uint64_t origin_version = 0;
  std::uint64_t newest = 0;
  std::vector<std::uint64_t> versions;  // On offer, ascending.
  std::string digest;                   // Of the newest.
  std::uint64_t model_bytes = 0;
  std::uint64_t payload_bytes = 0;  // Of the newest.
  std::uint64_t changed_elements = 0;
  std::vector<std::string> anchors;  // Names.
};

struct EngineView {
  std::string url;
  bool reachable = false;
  std::string message;  // Why it is not reachable or not ready; empty otherwise.
  std::string engine_id;
  std::string hostname;
  std::string state;  // "IDLE", "RESUMED", ...
  bool ready = false;
  std::string lineage;
  std::uint64_t version = 0;
  std::map<std::string, std::uint64_t> further;  // Versions of its other lineages.
  std::uint64_t target_version = 0;
  std::string digest;
  double pause_s = 0;  // Of the last update.
  bool lag_known = false;
  std::uint64_t lag = 0;  // Versions on offer that are newer than its own.
};

struct FleetView {
  std::string store_error;  // Why the store could not be read; empty when it was.
  std::vector<LineageView> lineages;
  std::vector<EngineView> engines;  // In the order that was asked for.
};

// Takes as long as the slowest engine, and no longer than the limits named in docs/protocol.md: who
// does not answer is unreachable. A failure for a URL that no engine or no store can have.
Result<FleetView> ReadFleet(const FleetOptions& options);

// InvalidArgument for what is no "http://HOST[:PORT]".
Status CheckEngineUrl(const std::string& url);

// Waits until every engine of the cohort serves this version of the lineage or a later one; each is
// asked at least once. Unavailable, saying of each that is behind what it has answered last.
Status WaitForEngines(const Cohort& cohort, const std::string& lineage, std::uint64_t version);

// Asks an engine over HTTP, for Cohort and Publisher. The engine's name is its URL.
EngineProbe HttpEngineProbe(std::string token);

}  // namespace segue
