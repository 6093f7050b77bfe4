// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: a layout object, and the same bytes as a layout's inner bytes (so that the fuzzer
// gets behind Zstd). Asserts that what is taken holds only safe shard names and valid headers, and
// that it is the same layout after storing and parsing again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "checkpoint/index.h"
#include "checkpoint/layout.h"
#include "checkpoint/layout_frame.h"

namespace segue {
namespace {

void CheckLayout(const Layout& layout) {
  SEGUE_CHECK(!layout.shards().empty());
  for (std::size_t i = 0; i < layout.shards().size(); ++i) {
    const LayoutShard& shard = layout.shards()[i];
    SEGUE_CHECK(CheckShardName(shard.name).ok());
    SEGUE_CHECK(i == 0 || layout.shards()[i - 1].name < shard.name);
    SEGUE_CHECK(ParseSafetensorsHeader(AsBytes(shard.header_json), shard.name).ok());
  }
  const ByteVector object = layout.MakeObject().value();
  const Layout again = Layout::Parse(object).value();
  SEGUE_CHECK(again.digest() == layout.digest());
  SEGUE_CHECK(again.index_json() == layout.index_json());
  SEGUE_CHECK(again.shards().size() == layout.shards().size());
}

// An object whose inner bytes are `inner`.
ByteVector Wrap(ByteSpan inner) {
  ByteVector object(24);
  std::copy_n(AsBytes("SEGUELAY").begin(), 8, object.begin());
  StoreLittle(object.data() + 8, std::uint32_t{1});
  StoreLittle(object.data() + 16, static_cast<std::uint64_t>(inner.size()));
  SEGUE_CHECK(EncodeLayoutFrame(inner, object).ok());
  return object;
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size));
  const auto layout = segue::Layout::Parse(bytes);
  if (layout.ok()) segue::CheckLayout(layout.value());
  const auto inner = segue::Layout::Parse(segue::Wrap(bytes));
  if (inner.ok()) segue::CheckLayout(inner.value());
  return 0;
}
