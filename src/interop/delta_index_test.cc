// SPDX-License-Identifier: Apache-2.0
//
// Delta index: text there and back, what makes an index one of a delta, and what is refused.
#include "interop/delta_index.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace segue {
namespace {

constexpr char kMetadata[] =
    R"("version": "000012", "base_version": "000011", "delta_encoding": "overwrite",
       "compression_format": "zstd", "checksum_format": "blake3")";

Result<std::optional<DeltaIndex>> Parse(const std::string& text) {
  return ParseDeltaIndex(AsBytes(text), "index");
}

std::string Index(const std::string& metadata, const std::string& map = "{}") {
  return "{\"metadata\": {" + metadata + "}, \"weight_map\": " + map + "}";
}

StatusCode CodeOf(const std::string& text) { return Parse(text).status().code(); }

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(DeltaIndexTest, ReadsWhatIsThere) {
  const auto index =
      Parse(Index(kMetadata, R"({"b": "x.safetensors", "a\n": "y.safetensors"})")).value();
  ASSERT_TRUE(index.has_value());
  EXPECT_EQ(index->version, 12u);
  EXPECT_EQ(index->base_version, 11u);
  EXPECT_EQ(index->encoding, DeltaEncoding::kOverwrite);
  EXPECT_EQ(index->checksum, ChecksumKind::kBlake3);
  ASSERT_EQ(index->map.entries.size(), 2u);
  EXPECT_EQ(index->map.entries[0].tensor, "a\n");
  EXPECT_EQ(index->map.shards[index->map.entries[0].shard], "y.safetensors");
}

TEST(DeltaIndexTest, ThereAndBack) {
  DeltaIndex index;
  index.version = limits::kDiskDeltaVersionMax;
  index.base_version = index.version - 1;
  for (const bool empty : {true, false}) {
    if (!empty) {
      index.map.shards = {"model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"};
      index.map.entries = {{"a", 0}, {"quoted \" \\ \t", 1}, {"z", 0}};
    }
    const auto again = Parse(MakeDeltaIndex(index)).value();
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(MakeDeltaIndex(*again), MakeDeltaIndex(index));
    EXPECT_EQ(again->map.entries.size(), index.map.entries.size());
  }
}

TEST(DeltaIndexTest, FullCheckpoints) {
  for (const char* const text :
       {R"({"metadata": {"total_size": 5}, "weight_map": {"a": "x.safetensors"}})",
        R"({"weight_map": {"a": "x.safetensors"}})",
        R"({"metadata": {"version": 3, "base_version": "000001"}, "weight_map": {}})", "{}"}) {
    EXPECT_FALSE(Parse(text).value().has_value()) << text;
  }
}

TEST(DeltaIndexTest, UnknownKeysAreIgnored) {
  EXPECT_TRUE(
      Parse(Index(std::string(kMetadata) + R"(, "total_size": 5, "x": [{}])")).value().has_value());
  EXPECT_TRUE(Parse(Replaced(Index(kMetadata), "\"weight_map\"", "\"y\": 1.5, \"weight_map\""))
                  .value()
                  .has_value());
}

TEST(DeltaIndexTest, Refuses) {
  const std::string good = Index(kMetadata);
  for (const char* const broken : {"", "[]", "{", "{}x", "{\"metadata\": 1}"}) {
    EXPECT_EQ(CodeOf(broken), StatusCode::kCorruption) << broken;
  }
  const std::pair<const char*, const char*> corrupt[] = {
      {"\"000012\"", "\"12\""},
      {"\"000012\"", "\"0000012\""},
      {"\"000012\"", "\"00001x\""},
      {"\"000012\"", "12"},
      {"\"version\"", "\"other\""},
      {"\"base_version\"", "\"other\""},
      {"\"overwrite\"", "null"},
      {"\"zstd\"", "1"},
      {"\"checksum_format\"", "\"version\": \"000012\", \"checksum_format\""},
      {"\"weight_map\"", "\"weight_map\": {}, \"weight_map\""},
      {"\"weight_map\"", "\"metadata\": {}, \"weight_map\""},
      {"\"weight_map\"", "\"other\""},
      {"\"weight_map\": {}", "\"weight_map\": []"},
      {"\"weight_map\": {}", "\"weight_map\": {\"a\": 1}"},
      {"\"weight_map\": {}", "\"weight_map\": {\"a\": \"../x.safetensors\"}"},
      {"\"weight_map\": {}", "\"weight_map\": {\"a\": \"x.bin\"}"},
      {"\"weight_map\": {}",
       "\"weight_map\": {\"a\": \"x.safetensors\", \"a\": \"y.safetensors\"}"},
  };
  for (const auto& [from, to] : corrupt) {
    EXPECT_EQ(CodeOf(Replaced(good, from, to)), StatusCode::kCorruption) << to;
  }
  const std::pair<const char*, const char*> unknown[] = {
      {"\"overwrite\"", "\"add\""},
      {"\"zstd\"", "\"lz4\""},
      {"\"blake3\"", "\"md5\""},
      {"\"overwrite\"", "\"\""},
      {"\"compression_format\"", "\"other\""},
      {"\"checksum_format\"", "\"other\""},
  };
  for (const auto& [from, to] : unknown) {
    EXPECT_EQ(CodeOf(Replaced(good, from, to)), StatusCode::kUnsupported) << to;
  }
}

TEST(DeltaIndexTest, Versions) {
  EXPECT_EQ(DiskVersionName(7), "weight_v000007");
  EXPECT_EQ(ParseDiskVersion(DiskVersionText(999'999)), 999'999u);
  EXPECT_EQ(ParseDiskVersion("000000"), 0u);
  for (const char* const text : {"", "1", "0000001", "-00001", "00000 ", "0x0001"}) {
    EXPECT_EQ(ParseDiskVersion(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace segue
