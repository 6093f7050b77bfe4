// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: XML as a server may send it. What parses must come back the same when its texts are
// written and read again.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "store/xml.h"

namespace {

std::string Write(const segue::XmlElement& element) {
  std::string text = "<" + element.name + ">" + segue::EscapeXml(element.text);
  for (const segue::XmlElement& child : element.children) text += Write(child);
  return text + "</" + element.name + ">";
}

bool Same(const segue::XmlElement& left, const segue::XmlElement& right) {
  if (left.name != right.name || left.text != right.text) return false;
  if (left.children.size() != right.children.size()) return false;
  for (std::size_t i = 0; i < left.children.size(); ++i) {
    if (!Same(left.children[i], right.children[i])) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const segue::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto root = segue::ParseXml(bytes);
  if (!root.ok()) return 0;
  const std::string written = Write(root.value());
  const auto again = segue::ParseXml(segue::AsBytes(written));
  // Escapes may bring a text over the limit of the size; nothing else may change.
  if (again.ok()) SEGUE_CHECK(Same(root.value(), again.value()));
  return 0;
}
