// SPDX-License-Identifier: Apache-2.0
//
// Safetensors files: the header's strict parser and a writer. The rules are those of the reference
// reader: header of at most 100,000,000 bytes, no holes, no overlaps, no duplicate keys, offsets
// that agree with the shapes, and nothing after the last tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/tensor.h"
#include "segue/status.h"

namespace segue {

struct SafetensorsEntry {
  TensorSpec spec;
  std::uint64_t offset = 0;  // From the start of the data section.
  std::uint64_t size = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // Ascending by offset, then size, then header order.
  std::map<std::string, std::string> metadata;
  std::uint64_t data_size = 0;
};

// Parses the JSON text of a header (without the 8-byte length). Corruption naming `path`, the
// tensor and the reason; Unsupported for a dtype that is not in docs/format.md; ResourceExhausted
// where a named limit (header size, tensor count, name size, rank) is exceeded.
Result<SafetensorsHeader> ParseSafetensorsHeader(ByteSpan json, const std::string& path);

// Splits a whole file: checks the length word, parses the header and compares its data size with
// what the file holds (bytes after the last tensor, or too few, are Corruption that gives both
// sizes).
struct SafetensorsFile {
  SafetensorsHeader header;
  ByteSpan json;  // Header text with its padding.
  ByteSpan data;
};
Result<SafetensorsFile> ParseSafetensorsFile(ByteSpan file, const std::string& path);

// The header text for `entries` as the reference writer would lay it out (keys in the given order,
// offsets as given, padded with spaces so that the data section is aligned to 8 bytes).
std::string MakeSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                  const std::map<std::string, std::string>& metadata);
// `value` as a JSON string, quotes included.
void AppendJsonString(std::string& text, std::string_view value);

}  // namespace segue
