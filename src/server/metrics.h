// SPDX-License-Identifier: Apache-2.0
//
// Metrics: a receiver's status, of each of its lineages, as Prometheus text (exposition format
// 0.0.4), and what it has counted since it was opened.
#pragma once

#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/server.h"
#include "segue/store_server.h"
#include "store/relay_store.h"

namespace segue {

// `counts`: in the order of `lineages`.
std::string MetricsText(const EngineIdentity& identity, const std::vector<ReceiverStatus>& lineages,
                        const std::vector<ReceiverCounts>& counts);

// Of a receiver that reads through relays or is one: what came from where, and what it has sent on.
std::string RelayMetricsText(const EngineIdentity& identity, const RelayStatistics& read,
                             const StoreServerStatistics& served);

}  // namespace segue
