// SPDX-License-Identifier: Apache-2.0
//
// Metrics: a receiver's status, of each of its lineages, as Prometheus text (exposition format
// 0.0.4).
#pragma once

#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/server.h"

namespace segue {

std::string MetricsText(const EngineIdentity& identity,
                        const std::vector<ReceiverStatus>& lineages);

}  // namespace segue
