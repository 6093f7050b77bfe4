// SPDX-License-Identifier: Apache-2.0
//
// Bearer tokens.
#include "segue/token.h"

#include <algorithm>
#include <cstdlib>

namespace segue {
namespace {

constexpr std::size_t kTokenSizeMax = 1024;

}  // namespace

Status CheckToken(const std::string& token) {
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!token.empty() && token.size() <= kTokenSizeMax && visible) return {};
  return InvalidArgument("a token has 1 to 1024 visible characters and no spaces");
}

Result<std::string> TokenFromEnvironment(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return std::string();
  const Status status = CheckToken(value);
  if (!status.ok()) {
    return status.WithContext("the environment variable " + std::string(variable) +
                              " is set (unset it where no token is wanted)");
  }
  return std::string(value);
}

}  // namespace segue
