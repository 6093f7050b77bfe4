// SPDX-License-Identifier: Apache-2.0
//
// Layout: inner bytes, their digest, and the checks that a layout from outside must pass before any
// file is written by it (docs/format.md, "Layout").
#include "checkpoint/layout.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/limits.h"
#include "checkpoint/index.h"
#include "checkpoint/layout_frame.h"
#include "checkpoint/safetensors.h"

namespace segue {
namespace {

constexpr std::string_view kLayoutMagic = "SEGUELAY";
constexpr std::uint32_t kLayoutFormatVersion = 1;
constexpr std::size_t kLayoutHeadSize = 24;

// Calls sink(ByteSpan) with the inner bytes, piece by piece.
template <typename Sink>
void WriteInner(std::span<const LayoutShard> shards, std::string_view index_json, Sink&& sink) {
  const auto number = [&sink](auto value) { sink(std::as_bytes(std::span(&value, 1))); };
  number(static_cast<std::uint32_t>(shards.size()));
  for (const LayoutShard& shard : shards) {
    number(static_cast<std::uint16_t>(shard.name.size()));
    sink(AsBytes(shard.name));
    number(static_cast<std::uint64_t>(shard.header_json.size()));
    sink(AsBytes(shard.header_json));
  }
  number(static_cast<std::uint64_t>(index_json.size()));
  sink(AsBytes(index_json));
}

Sha256 HashInner(std::span<const LayoutShard> shards, std::string_view index_json) {
  Sha256Hasher hasher;
  WriteInner(shards, index_json, [&hasher](ByteSpan piece) { hasher.Add(piece); });
  return hasher.Finish();
}

Status EndsIn(const std::string& what) {
  return Corruption("layout: the bytes end inside " + what);
}

Result<LayoutShard> ReadShard(ByteReader& reader, const LayoutShard* previous) {
  const auto name_size = reader.Read<std::uint16_t>();
  LayoutShard shard;
  shard.name = AsText(reader.ReadBytes(name_size));
  if (!reader.ok()) return EndsIn("a shard's name");
  const Status name = CheckShardName(shard.name);
  if (!name.ok()) return Corruption("layout: " + name.message());
  if (previous != nullptr && previous->name >= shard.name) {
    return Corruption("layout: shard " + Quoted(shard.name) + " is not after " +
                      Quoted(previous->name) + " in the order of names");
  }
  const auto header_size = reader.Read<std::uint64_t>();
  if (reader.ok() && header_size > limits::kSafetensorsHeaderSizeMax) {
    return Corruption("layout: shard " + Quoted(shard.name) + " has a header of " +
                      std::to_string(header_size) + " bytes, the limit is " +
                      std::to_string(limits::kSafetensorsHeaderSizeMax));
  }
  shard.header_json = AsText(reader.ReadBytes(header_size));
  if (!reader.ok()) return EndsIn("the header of shard " + Quoted(shard.name));
  return shard;
}

Result<std::vector<LayoutShard>> ReadShards(ByteReader& reader) {
  const auto count = reader.Read<std::uint32_t>();
  if (!reader.ok()) return EndsIn("the shard count");
  if (count == 0 || count > limits::kShardCountMax) {
    return Corruption("layout: claims " + std::to_string(count) + " shards, expected 1 to " +
                      std::to_string(limits::kShardCountMax));
  }
  std::vector<LayoutShard> shards;
  for (std::uint32_t i = 0; i < count; ++i) {
    SEGUE_ASSIGN_OR_RETURN(LayoutShard shard,
                           ReadShard(reader, shards.empty() ? nullptr : &shards.back()));
    shards.push_back(std::move(shard));
  }
  return shards;
}

Result<std::string> ReadIndexJson(ByteReader& reader) {
  const auto size = reader.Read<std::uint64_t>();
  if (reader.ok() && size > limits::kIndexSizeMax) {
    return Corruption("layout: the index has " + std::to_string(size) + " bytes, the limit is " +
                      std::to_string(limits::kIndexSizeMax));
  }
  std::string json(AsText(reader.ReadBytes(size)));
  if (!reader.ok()) return EndsIn("the index");
  if (reader.remaining() != 0) {
    return Corruption("layout: " + std::to_string(reader.remaining()) +
                      " bytes lie past the index");
  }
  return json;
}

// Headers must be valid and agree with each other and with the index, as in a checkpoint on disk.
Status CheckContents(std::span<const LayoutShard> shards, const std::string& index_json) {
  std::vector<SafetensorsHeader> headers;
  std::vector<std::string> names;
  std::vector<IndexedTensor> tensors;
  for (const LayoutShard& shard : shards) {
    SEGUE_ASSIGN_OR_RETURN(
        SafetensorsHeader header,
        ParseSafetensorsHeader(AsBytes(shard.header_json), "layout: " + shard.name));
    headers.push_back(std::move(header));
    names.push_back(shard.name);
  }
  for (std::size_t i = 0; i < headers.size(); ++i) {
    for (const SafetensorsEntry& entry : headers[i].entries) {
      tensors.push_back({entry.spec.name, static_cast<std::uint32_t>(i)});
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const IndexedTensor& a, const IndexedTensor& b) { return a.name < b.name; });
  const std::string index_path = std::string("layout: ") + kIndexFileName;
  if (index_json.empty()) {
    if (shards.size() == 1) return {};
    return Corruption("layout: has " + std::to_string(shards.size()) + " shards and no index");
  }
  SEGUE_ASSIGN_OR_RETURN(const IndexFile index, ParseIndex(AsBytes(index_json), index_path));
  if (index.shards != names) {
    return Corruption("layout: the index names " + std::to_string(index.shards.size()) +
                      " shards that are not the layout's " + std::to_string(names.size()));
  }
  return CheckIndexMatches(index, tensors, index_path);
}

}  // namespace

Layout Layout::FromCheckpoint(const Checkpoint& checkpoint) {
  Layout layout;
  for (const Shard& shard : checkpoint.shards()) {
    layout.shards_.push_back({shard.name, std::string(AsText(shard.header_json))});
  }
  layout.index_json_ = AsText(checkpoint.index_json());
  layout.Seal();
  return layout;
}

void Layout::Seal() { digest_ = HashInner(shards_, index_json_); }

Result<Layout> Layout::Parse(ByteSpan object) {
  ByteReader reader(object);
  if (AsText(reader.ReadBytes(kLayoutMagic.size())) != kLayoutMagic) {
    return Corruption("layout: does not begin with " + std::string(kLayoutMagic));
  }
  const auto version = reader.Read<std::uint32_t>();
  const auto reserved = reader.Read<std::uint32_t>();
  const auto inner_size = reader.Read<std::uint64_t>();
  if (!reader.ok()) return EndsIn("the head");
  if (version != kLayoutFormatVersion) {
    return Unsupported("layout: format version " + std::to_string(version) + ", expected 1");
  }
  if (reserved != 0) return Corruption("layout: the reserved field is not 0");
  SEGUE_ASSIGN_OR_RETURN(const LayoutBytes inner,
                         DecodeLayoutFrame(object.subspan(reader.offset()), inner_size));
  ByteReader inner_reader(inner.bytes());
  Layout layout;
  SEGUE_ASSIGN_OR_RETURN(layout.shards_, ReadShards(inner_reader));
  SEGUE_ASSIGN_OR_RETURN(layout.index_json_, ReadIndexJson(inner_reader));
  SEGUE_RETURN_IF_ERROR(CheckContents(layout.shards_, layout.index_json_));
  layout.digest_ = HashSha256(inner.bytes());
  return layout;
}

Result<ByteVector> Layout::MakeObject() const {
  std::uint64_t inner_size = 0;
  WriteInner(shards_, index_json_, [&inner_size](ByteSpan piece) { inner_size += piece.size(); });
  if (inner_size > limits::kLayoutSizeMax) {
    return ResourceExhausted("the layout has " + std::to_string(inner_size) +
                             " bytes, the limit is " + std::to_string(limits::kLayoutSizeMax));
  }
  ByteVector inner;
  inner.reserve(inner_size);
  WriteInner(shards_, index_json_, [&inner](ByteSpan piece) { AppendBytes(inner, piece); });
  ByteVector object(kLayoutHeadSize);
  std::memcpy(object.data(), kLayoutMagic.data(), kLayoutMagic.size());
  StoreLittle(object.data() + 8, kLayoutFormatVersion);
  StoreLittle(object.data() + 16, inner_size);  // The reserved field between them is 0.
  SEGUE_RETURN_IF_ERROR(EncodeLayoutFrame(inner, object));
  return object;
}

}  // namespace segue
