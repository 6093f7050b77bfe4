// SPDX-License-Identifier: Apache-2.0
//
// Metrics: a receiver's status as Prometheus text (exposition format 0.0.4).
#pragma once

#include <string>

#include "segue/receiver.h"
#include "segue/server.h"

namespace segue {

std::string MetricsText(const EngineIdentity& identity, const ReceiverStatus& status);

}  // namespace segue
