// SPDX-License-Identifier: Apache-2.0
//
// Safetensors header writer: JSON text as the reference writer (serde_json) lays it out, so that a
// file written here equals one from the reference library when given the same order and offsets.
#include "checkpoint/safetensors.h"

namespace segue {

void AppendJsonString(std::string& text, std::string_view value) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += '"';
  for (const char c : value) {
    switch (c) {
      case '"': text += "\\\""; break;
      case '\\': text += "\\\\"; break;
      case '\b': text += "\\b"; break;
      case '\f': text += "\\f"; break;
      case '\n': text += "\\n"; break;
      case '\r': text += "\\r"; break;
      case '\t': text += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) {
          text += c;
        } else {
          text += "\\u00";
          text += {kDigits[c >> 4], kDigits[c & 15]};
        }
    }
  }
  text += '"';
}

namespace {

void AppendEntry(std::string& text, const SafetensorsEntry& entry) {
  AppendJsonString(text, entry.spec.name);
  text += ":{\"dtype\":\"";
  text += DtypeName(entry.spec.dtype);
  text += "\",\"shape\":[";
  for (std::size_t i = 0; i < entry.spec.shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(entry.spec.shape[i]);
  }
  text += "],\"data_offsets\":[" + std::to_string(entry.offset) + ',' +
          std::to_string(entry.offset + entry.size) + "]}";
}

}  // namespace

std::string MakeSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                  const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      AppendJsonString(text, key);
      text += ':';
      AppendJsonString(text, value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    if (text.size() > 1) text += ',';
    AppendEntry(text, entry);
  }
  text += '}';
  // The data section follows an 8-byte length and this text.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace segue
