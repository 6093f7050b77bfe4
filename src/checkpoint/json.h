// SPDX-License-Identifier: Apache-2.0
//
// Strict reading of large JSON texts by simdjson's on-demand parser, for the header and index
// parsers alone. On-demand parsing checks only what is visited, so every value is visited: what a
// caller does not know goes through SkipJsonValue, and Finish() refuses whatever follows the root.
// Then the text is JSON throughout (UTF-8, escapes, numbers, nesting). Holds one padded copy of the
// text.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

class JsonObjectReader {
 public:
  JsonObjectReader() = default;
  // The root points into the document, so a reader stays where it is.
  JsonObjectReader(const JsonObjectReader&) = delete;
  JsonObjectReader& operator=(const JsonObjectReader&) = delete;

  // `path` names the text in messages. Corruption unless the text begins with '{'.
  Status Open(ByteSpan text, std::string_view path);
  // The root object; walk it once, front to back. Strings taken from it live as long as the reader.
  simdjson::ondemand::object& root() { return root_; }
  // Nothing but white space may follow the root.
  Status Finish();

  // "'path': reason" with the parser's own words behind.
  Status Fault(std::string_view reason, simdjson::error_code error) const;
  // "'path': reason".
  Status Fault(std::string_view reason) const;

 private:
  std::string path_;
  simdjson::padded_string copy_;
  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
  simdjson::ondemand::object root_;
};

// Visits a whole value, so that its syntax is checked. Nesting is bounded as in serde_json (128).
simdjson::error_code SkipJsonValue(simdjson::ondemand::value value, int depth = 1);

}  // namespace segue
