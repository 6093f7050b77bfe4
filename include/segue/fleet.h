// SPDX-License-Identifier: Apache-2.0
//
// Fleet: what a store offers and what each of several engines says of itself, read at one moment.
// It asks the endpoints of docs/protocol.md, section 8, and changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/publisher.h"
#include "segue/status.h"

namespace segue {

struct FleetOptions {
  std::string store = {};                  // Empty: none is looked at.
  std::vector<std::string> lineages = {};  // Empty: every one of the store.
  std::vector<std::string> engines = {};   // "http://HOST:PORT".
  std::string token = {};                  // Bearer token for engines; may be empty.
  KeyFiles keys = {};                      // With public ones nothing else of the store is shown.
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

// What an engine holds of one lineage.
struct LineageAtEngine {
  std::string lineage;
  std::uint64_t version = 0;
  std::string digest;
  std::uint64_t target_version = 0;  // As in ReceiverStatus.
  double pause_s = 0;                // Of the last update.
  // The weights are none of the lineage that the store has under this name: another run's.
  bool is_other = false;
  bool lag_known = false;
  std::uint64_t lag = 0;  // The lineage's newest number less its own.
};

struct EngineView {
  std::string url;
  bool reachable = false;
  std::string message;  // Why it is not reachable or not ready; empty otherwise.
  std::string engine_id;
  std::string hostname;
  std::string state;  // "IDLE", "RESUMED", ...
  bool ready = false;
  std::vector<LineageAtEngine> lineages;  // In the engine's order; not empty where reachable.
};

// What a cohort is to have.
struct AwaitedVersion {
  std::string lineage = {};
  std::uint64_t version = 0;
  std::string digest = {};  // As its publish has reported it.
  std::string store = {};   // Says which later versions are of the same lineage.
  KeyFiles keys = {};       // Of that store.
};

struct FleetView {
  std::string store_error;  // Why the store could not be read; empty when it was.
  std::vector<LineageView> lineages;
  std::vector<EngineView> engines;  // In the order that was asked for.
};

// Takes as long as the slowest engine, and no longer than the limits named in docs/protocol.md: who
// does not answer is unreachable. A failure for a URL that no engine or no store can have.
Result<FleetView> ReadFleet(const FleetOptions& options);

// InvalidArgument for what is no "http://HOST[:PORT]", with or without a '/' behind it.
Status CheckEngineUrl(const std::string& url);

// Waits until every engine of the cohort serves this version of the lineage or a later one, by
// their digests; each is asked at least once. Unavailable, saying of each that is behind what it
// has answered last.
Status WaitForEngines(const Cohort& cohort, const AwaitedVersion& awaited);

// Asks an engine over HTTP, for Cohort and Publisher. The engine's name is its URL.
EngineProbe HttpEngineProbe(std::string token);

}  // namespace segue
