// SPDX-License-Identifier: Apache-2.0
//
// A small, strict reader for the XML that S3 servers answer with: elements, text and the five
// entities. What must hold: bounded in size, depth and count, whatever comes; no document types,
// hence no entities of others; what is not understood is refused, never skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

struct XmlElement {
  std::string name;  // Without a namespace's prefix.
  std::string text;  // All text directly in it, entities decoded.
  std::vector<XmlElement> children;

  // The first child of that name, or null.
  const XmlElement* Child(std::string_view child) const;
  // The text of the first child of that name, or empty.
  std::string_view ChildText(std::string_view child) const;
};

// The root element. Corruption where `text` is no such document or over a limit.
Result<XmlElement> ParseXml(ByteSpan text);

// `text` as the content of an element.
std::string EscapeXml(std::string_view text);

}  // namespace segue
