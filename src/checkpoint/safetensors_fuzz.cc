// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: a safetensors file. Asserts that what the parser takes tiles the data section, and
// that a header written from the result parses to the same result; nothing else than a Status comes
// of the rest. Also lays bare sizes: no tensor is larger than the input.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace segue {
namespace {

void CheckTiles(const SafetensorsFile& file) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : file.header.entries) {
    SEGUE_CHECK(entry.offset == end);
    SEGUE_CHECK(TensorSize(entry.spec).value() == entry.size);
    SEGUE_CHECK(entry.size <= file.data.size() - end);
    end += entry.size;
  }
  SEGUE_CHECK(end == file.data.size());
  SEGUE_CHECK(file.header.data_size == end);
}

void CheckRoundTrip(const SafetensorsHeader& header) {
  const std::string text = MakeSafetensorsHeader(header.entries, header.metadata);
  const SafetensorsHeader again = ParseSafetensorsHeader(AsBytes(text), "again").value();
  SEGUE_CHECK(again.metadata == header.metadata);
  SEGUE_CHECK(again.entries.size() == header.entries.size());
  for (std::size_t i = 0; i < again.entries.size(); ++i) {
    SEGUE_CHECK(again.entries[i].spec == header.entries[i].spec);
    SEGUE_CHECK(again.entries[i].offset == header.entries[i].offset);
    SEGUE_CHECK(again.entries[i].size == header.entries[i].size);
  }
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size));
  const auto file = segue::ParseSafetensorsFile(bytes, "fuzz");
  if (file.ok()) {
    segue::CheckTiles(file.value());
    segue::CheckRoundTrip(file.value().header);
  } else {
    SEGUE_CHECK(!file.status().message().empty());
  }
  return 0;
}
