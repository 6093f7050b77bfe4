// SPDX-License-Identifier: Apache-2.0
//
// URLs of stores on a network, in parts. Strict: whatever could carry a secret (user, query) is
// refused, and not repeated in the message.
#pragma once

#include <string>
#include <string_view>

#include "segue/status.h"

namespace segue {

// Names are parts of [A-Za-z0-9._-] joined by '/', so no URL here ever needs an escape.
struct HttpUrl {
  std::string scheme;     // "http" or "https".
  std::string authority;  // HOST or HOST:PORT, as the Host header has it.
  std::string path;       // "" or "/a/b": begins with '/', never ends with one.

  // "https://host:1234".
  std::string Origin() const { return scheme + "://" + authority; }
  std::string Text() const { return Origin() + path; }
};

// "http(s)://HOST[:PORT][/PREFIX]". InvalidArgument otherwise.
Result<HttpUrl> ParseHttpUrl(std::string_view url);

}  // namespace segue
