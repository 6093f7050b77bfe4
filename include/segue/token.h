// SPDX-License-Identifier: Apache-2.0
//
// Bearer tokens: which can be sent, and the one that the environment names. What must hold: a
// variable that is set is meant, so one without a token in it is an error, never "no token": that
// would open what should be closed.
#pragma once

#include <string>

#include "segue/status.h"

namespace segue {

// A bearer token that can be sent: 1 to 1024 visible characters. InvalidArgument otherwise; the
// token is not repeated.
Status CheckToken(const std::string& token);

// The token in the environment variable; empty where it is not set. InvalidArgument, naming the
// variable, where it is set to what is no token.
Result<std::string> TokenFromEnvironment(const char* variable);

}  // namespace segue
