// SPDX-License-Identifier: Apache-2.0
//
// RequestHead: what a request's head must look like, decided before the HTTP library sees a byte of
// it. What must hold: there is one way to read what is let through, so that a proxy in front and
// the library cannot disagree where a request ends or what it asks for (request smuggling). RFC
// 9112 allows servers to mend some of what is refused here; none of our clients needs that.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace segue {

struct RequestHead {
  // Without the field Range: the library has its own way with it in each release, with limits of
  // none. What the handlers are to know of it is in `range`.
  std::string text;
  // The value of the one field Range; empty where there is none, or several.
  std::string range;
  // Whether the connection must end with the answer: bytes that follow may be of a body that
  // nobody reads, or of one in chunks, which the library reads leniently.
  bool is_last = false;

  // `text`: all of it, with the empty line at its end. Nothing: it is refused (400).
  static std::optional<RequestHead> Parse(std::string_view text);
};

}  // namespace segue
