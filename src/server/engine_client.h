// SPDX-License-Identifier: Apache-2.0
//
// Engine client: asks one serving receiver over HTTP. Whatever the other side does (nothing, slow
// bytes, endless bytes, no JSON), an answer or a reason is there within the limits.
#pragma once

#include <string>

#include "segue/fleet.h"
#include "segue/status.h"

namespace segue {

// Everything but the lag. `token` may be empty.
EngineView AskEngine(const std::string& url, const std::string& token);

}  // namespace segue
