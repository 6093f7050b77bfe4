// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as manifest, anchor, lineage and owner record: refused with a reason, or read into
// something whose own text is read back as the same. Names that come out never leave the lineage.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/limits.h"
#include "delta/manifest.h"

namespace segue {
namespace {

void CheckNames(const std::string& lineage, const PayloadEntry& entry) {
  SEGUE_CHECK(CheckLineageName(lineage).ok());
  SEGUE_CHECK(entry.object.starts_with(lineage + "/"));
  SEGUE_CHECK(("/" + entry.object + "/").find("/../") == std::string::npos);
  SEGUE_CHECK(entry.object.find('\0') == std::string::npos);
}

void CheckContent(const Manifest& manifest) {
  for (const PayloadEntry& entry : manifest.payloads) CheckNames(manifest.identity.lineage, entry);
}
void CheckContent(const AnchorRecord& record) {
  CheckContent(record.manifest);
  SEGUE_CHECK(CheckLineageName(record.anchor).ok());
  const DeltaIdentity& identity = record.manifest.identity;
  SEGUE_CHECK(record.leads_on() == (identity.base_version < identity.target_version));
}
void CheckContent(const LineageRecord& record) {
  SEGUE_CHECK(CheckLineageName(record.lineage).ok());
}
void CheckContent(const OwnerRecord& record) {
  CheckNames(record.identity.lineage, record.payload);
  SEGUE_CHECK(record.payload.owner < record.owner_count);
}

template <typename T>
void Check(ByteSpan json) {
  const Result<T> value = T::Parse(json, "input");
  if (!value.ok()) {
    SEGUE_CHECK(!value.status().message().empty());
    return;
  }
  CheckContent(value.value());
  const std::string text = value->ToJson();
  // Our own text has spaces and line ends, so it may pass the limit where the input did not.
  if (text.size() > limits::kManifestSizeMax) return;
  const Result<T> again = T::Parse(AsBytes(text), "own text");
  SEGUE_CHECK(again.ok());
  SEGUE_CHECK(again.value() == value.value());
  SEGUE_CHECK(again->ToJson() == text);
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const segue::ByteSpan json = std::as_bytes(std::span(data, size));
  segue::Check<segue::Manifest>(json);
  segue::Check<segue::AnchorRecord>(json);
  segue::Check<segue::LineageRecord>(json);
  segue::Check<segue::OwnerRecord>(json);
  return 0;
}
