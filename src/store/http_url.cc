// SPDX-License-Identifier: Apache-2.0
//
// URLs of stores on a network: every byte is checked, nothing is repaired.
#include "store/http_url.h"

#include <algorithm>
#include <charconv>

#include "store/store.h"

namespace segue {
namespace {

constexpr std::string_view kExpected = "expected http://HOST[:PORT][/PREFIX] or https://...";

bool IsHostByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

bool IsHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
      return IsHostByte(c) || c == ':' || c == '%';
    });
  }
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), IsHostByte);
}

bool IsPort(std::string_view port) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
}

bool IsAuthority(std::string_view authority) {
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!has_port) return IsHost(authority);
  return IsHost(authority.substr(0, colon)) && IsPort(authority.substr(colon + 1));
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view url) {
  HttpUrl parsed;
  const std::size_t mark = url.find("://");
  if (mark != std::string_view::npos) parsed.scheme = std::string(url.substr(0, mark));
  if (parsed.scheme != "http" && parsed.scheme != "https") {
    return InvalidArgument("the store's URL has no http:// or https:// in front; " +
                           std::string(kExpected));
  }
  std::string_view rest = url.substr(mark + 3);
  if (rest.find_first_of("@?#") != std::string_view::npos) {
    return InvalidArgument(
        "the store's URL (not shown) has a user, a query or a fragment; secrets belong into "
        "SEGUE_STORE_TOKEN, " +
        std::string(kExpected));
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  parsed.authority = std::string(rest.substr(0, slash));
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (!IsAuthority(parsed.authority)) {
    return InvalidArgument("the store's URL has no host and port that can be; " +
                           std::string(kExpected));
  }
  if (!path.empty()) {
    const Status prefix = CheckObjectName(path.substr(1));
    if (!prefix.ok()) return prefix.WithContext("the prefix of the store's URL");
  }
  parsed.path = std::string(path);
  return parsed;
}

}  // namespace segue
