// SPDX-License-Identifier: Apache-2.0
//
// RequestHead: the grammar of RFC 9112, sections 2 to 6, without what it allows for old clients.
#include "server/request_head.h"

#include <algorithm>
#include <utility>

namespace segue {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Of methods and of field names.
bool IsToken(std::string_view text) {
  const auto is_token = [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || IsDigit(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

// The next line, without its end; nothing where there is none, or it ends otherwise than by CR LF.
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || end == 0 || text[end - 1] != '\r') return std::nullopt;
  const std::string_view line = text.substr(0, end - 1);
  text.remove_prefix(end + 1);
  return line;
}

// "METHOD /path HTTP/1.1": one space each, and a path, neither a whole URL nor a part of one.
bool IsRequestLine(std::string_view line, std::string_view& method) {
  const std::size_t first = line.find(' ');
  const std::size_t second = line.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  const auto is_visible = [](char c) { return c > ' ' && c <= '~' && c != '#'; };
  return IsToken(method) && target.starts_with('/') &&
         std::all_of(target.begin(), target.end(), is_visible) &&
         (version == "HTTP/1.1" || version == "HTTP/1.0");
}

struct Field {
  std::string name;  // In lower case.
  std::string_view value;
};

// A line that goes on from the one before (it begins with a space) is none.
std::optional<Field> ParseField(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return std::nullopt;
  std::string_view value = line.substr(colon + 1);
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
  const auto is_control = [&](char c) {
    return (static_cast<unsigned char>(c) < 32 && c != '\t') || c == 127;
  };
  if (std::any_of(value.begin(), value.end(), is_control)) return std::nullopt;
  return Field{LowerCase(line.substr(0, colon)), value};
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

// What is counted while the fields go by.
struct Seen {
  int hosts = 0;
  int lengths = 0;
  int codings = 0;
  int ranges = 0;
  bool has_body = false;
};

// False: a field that says where the request ends does not say it clearly.
bool Look(const Field& field, Seen& seen, RequestHead& head) {
  if (field.name == "host") return ++seen.hosts == 1;
  if (field.name == "content-length") {
    seen.has_body = seen.has_body || field.value.find_first_not_of('0') != std::string_view::npos;
    return ++seen.lengths == 1 && IsNumber(field.value);
  }
  if (field.name == "transfer-encoding") {
    seen.has_body = true;
    return ++seen.codings == 1 && LowerCase(field.value) == "chunked";
  }
  if (field.name == "range") {
    head.range = ++seen.ranges == 1 ? std::string(field.value) : std::string();
  }
  return true;
}

}  // namespace

std::optional<RequestHead> RequestHead::Parse(std::string_view text) {
  RequestHead head;
  const auto first = TakeLine(text);
  std::string_view method;
  if (!first || !IsRequestLine(*first, method)) return std::nullopt;
  head.text = std::string(*first) + std::string(kLineEnd);
  Seen seen;
  for (;;) {
    const auto line = TakeLine(text);
    if (!line) return std::nullopt;
    if (line->empty()) break;
    const std::optional<Field> field = ParseField(*line);
    if (!field || !Look(*field, seen, head)) return std::nullopt;
    if (field->name != "range") head.text += std::string(*line) + std::string(kLineEnd);
  }
  const bool old = first->ends_with("1.0");
  if (!text.empty() || (seen.codings > 0 && (seen.lengths > 0 || old))) return std::nullopt;
  head.text += kLineEnd;
  const bool takes_body = method == "POST" || method == "PUT";
  head.is_last = seen.codings > 0 || (seen.has_body && !takes_body);
  return head;
}

}  // namespace segue
