// SPDX-License-Identifier: Apache-2.0
//
// Goal: a layout rebuilds the files of a checkpoint byte for byte, its digest does not depend on
// Zstd, and whatever is not a layout is refused before a file name of it could be used.
#include "checkpoint/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <string>

#include "base/limits.h"
#include "checkpoint/layout_frame.h"
#include "checkpoint/testing.h"

namespace segue {
namespace {

using testing::HasSubstr;

constexpr char kHeader[] = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
constexpr char kOtherHeader[] = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

template <typename T>
void Append(ByteVector& target, T value) {
  target.resize(target.size() + sizeof(T));
  StoreLittle(target.data() + target.size() - sizeof(T), value);
}

void AppendString(ByteVector& target, std::string_view text) {
  for (const char c : text) target.push_back(static_cast<std::byte>(c));
}

// Inner bytes from shards and an index, without any check.
ByteVector Inner(const std::vector<LayoutShard>& shards, std::string_view index) {
  ByteVector inner;
  Append(inner, static_cast<std::uint32_t>(shards.size()));
  for (const LayoutShard& shard : shards) {
    Append(inner, static_cast<std::uint16_t>(shard.name.size()));
    AppendString(inner, shard.name);
    Append(inner, static_cast<std::uint64_t>(shard.header_json.size()));
    AppendString(inner, shard.header_json);
  }
  Append(inner, static_cast<std::uint64_t>(index.size()));
  AppendString(inner, index);
  return inner;
}

// An object around a frame, which is taken as it is.
ByteVector Object(std::uint64_t inner_size, ByteSpan frame) {
  ByteVector object;
  AppendString(object, "SEGUELAY");
  Append(object, std::uint32_t{1});
  Append(object, std::uint32_t{0});
  Append(object, inner_size);
  AppendString(object, AsText(frame));
  return object;
}

ByteVector Frame(ByteSpan inner) {
  ByteVector frame(ZSTD_compressBound(inner.size()));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), inner.data(), inner.size(), 3));
  return frame;
}

ByteVector ObjectOf(ByteSpan inner) { return Object(inner.size(), Frame(inner)); }

std::string Refusal(ByteSpan object) {
  const Status status = Layout::Parse(object).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("layout"));
  return status.message();
}

std::string InnerRefusal(const ByteVector& inner) { return Refusal(ObjectOf(inner)); }

// Builds every file from the layout and the tensors' bytes, and compares with the directory.
void ExpectRebuilds(const Layout& layout, const Checkpoint& checkpoint) {
  ASSERT_EQ(layout.shards().size(), checkpoint.shards().size());
  for (const LayoutShard& shard : layout.shards()) {
    const SafetensorsHeader header =
        ParseSafetensorsHeader(AsBytes(shard.header_json), shard.name).value();
    ByteVector data(header.data_size);
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      for (const SafetensorsEntry& entry : header.entries) {
        if (entry.spec.name != checkpoint.tensors()[i].spec.name) continue;
        const ByteSpan bytes = checkpoint.TensorBytes(i);
        std::copy(bytes.begin(), bytes.end(),
                  data.begin() + static_cast<std::ptrdiff_t>(entry.offset));
      }
    }
    const ByteVector rebuilt = test::MakeSafetensorsFile(shard.header_json, data);
    const ByteVector file = ReadFile(JoinPath(checkpoint.directory(), shard.name), 1 << 20).value();
    EXPECT_EQ(AsText(rebuilt), AsText(file)) << shard.name;
  }
  EXPECT_EQ(layout.index_json(), AsText(checkpoint.index_json()));
}

TEST(LayoutTest, RebuildsShardsByteForByte) {  // case C6
  const test::TemporaryDirectory directory;
  test::WriteShardedCheckpoint(directory.path(),
                               {{test::RandomTensor({"z", Dtype::kBF16, {4}}, 1),
                                 test::RandomTensor({"a", Dtype::kU8, {3}}, 2)},
                                {test::RandomTensor({"m", Dtype::kF32, {2}}, 3)}},
                               {{"format", "pt"}});
  const Checkpoint checkpoint = Checkpoint::Open(directory.path()).value();
  const Layout layout = Layout::FromCheckpoint(checkpoint);
  const ByteVector object = layout.MakeObject().value();
  const Layout parsed = Layout::Parse(object).value();
  EXPECT_EQ(parsed.digest(), layout.digest());
  ExpectRebuilds(parsed, checkpoint);
}

TEST(LayoutTest, CarriesOddHeadersAsTheyAre) {  // cases A1, C6
  const test::TemporaryDirectory directory;
  const std::string json =
      "{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}, \"__metadata__\" : {} ,\n"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3,0,2],\"data_offsets\":[4,4]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}   ";
  test::WriteFile(directory.File("model.safetensors"),
                  test::MakeSafetensorsFile(json, test::RandomBytes(1, 4)));
  const Checkpoint checkpoint = Checkpoint::Open(directory.path()).value();
  const Layout parsed =
      Layout::Parse(Layout::FromCheckpoint(checkpoint).MakeObject().value()).value();
  EXPECT_EQ(parsed.shards()[0].header_json, json);
  EXPECT_TRUE(parsed.index_json().empty());
  ExpectRebuilds(parsed, checkpoint);
}

TEST(LayoutTest, ResavedFilesHaveAnotherLayoutOfTheSameTensors) {  // case C6
  const test::TestTensor a = test::RandomTensor({"a", Dtype::kU8, {3}}, 1);
  const test::TestTensor b = test::RandomTensor({"b", Dtype::kF32, {2}}, 2);
  const test::TestTensor c = test::RandomTensor({"c", Dtype::kF32, {2}}, 3);
  const test::TemporaryDirectory one, other;
  test::WriteShardedCheckpoint(one.path(), {{a, b}, {c}});
  test::WriteShardedCheckpoint(other.path(), {{c}, {b}, {a}}, {{"format", "pt"}});
  const Checkpoint base = Checkpoint::Open(one.path()).value();
  const Checkpoint target = Checkpoint::Open(other.path()).value();
  EXPECT_NE(Layout::FromCheckpoint(base).digest(), Layout::FromCheckpoint(target).digest());
  ASSERT_EQ(base.tensors().size(), target.tensors().size());
  for (std::size_t i = 0; i < base.tensors().size(); ++i) {
    EXPECT_EQ(base.tensors()[i].spec, target.tensors()[i].spec);
    EXPECT_EQ(AsText(base.TensorBytes(i)), AsText(target.TensorBytes(i)));
  }
}

TEST(LayoutTest, DigestIsOfTheInnerBytes) {
  const ByteVector inner = Inner({{"model.safetensors", kHeader}}, "");
  const Layout layout = Layout::Parse(ObjectOf(inner)).value();
  EXPECT_EQ(layout.digest(), HashSha256(inner));
  // Another compression of the same bytes.
  const Layout again = Layout::Parse(layout.MakeObject().value()).value();
  EXPECT_EQ(again.digest(), layout.digest());
}

TEST(LayoutTest, Head) {
  const ByteVector good = ObjectOf(Inner({{"model.safetensors", kHeader}}, ""));
  ASSERT_TRUE(Layout::Parse(good).ok());
  const auto with = [&good](std::size_t offset, auto value) {
    ByteVector object = good;
    StoreLittle(object.data() + offset, value);
    return Layout::Parse(object).status();
  };
  EXPECT_EQ(with(0, 'X').code(), StatusCode::kCorruption);
  EXPECT_EQ(with(8, std::uint32_t{2}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(with(12, std::uint32_t{1}).code(), StatusCode::kCorruption);
  for (const std::uint64_t size : {0ull, 1ull, 1ull << 30, (1ull << 30) + 1, 1ull << 60, ~0ull}) {
    EXPECT_EQ(with(16, size).code(), StatusCode::kCorruption) << size;  // case F5
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(Layout::Parse(ByteSpan(good).first(size)).status().code(), StatusCode::kCorruption);
  }
}

TEST(LayoutTest, ShardNames) {  // case B5
  for (const std::string& name :
       {std::string("../x.safetensors"), std::string("/etc/x"), std::string("a/../../x"),
        std::string("C:\\x"), std::string(""), std::string("x\0y", 3),
        std::string(".x.safetensors"), std::string("x"), std::string(300, 'a') + ".safetensors"}) {
    EXPECT_THAT(InnerRefusal(Inner({{name, kHeader}}, "")), HasSubstr("shard name"));
  }
  const std::string index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  EXPECT_TRUE(
      Layout::Parse(
          ObjectOf(Inner({{"1.safetensors", kHeader}, {"2.safetensors", kOtherHeader}}, index)))
          .ok());
  EXPECT_THAT(
      InnerRefusal(Inner({{"2.safetensors", kOtherHeader}, {"1.safetensors", kHeader}}, index)),
      HasSubstr("is not after '2.safetensors'"));
  EXPECT_THAT(
      InnerRefusal(Inner({{"1.safetensors", kHeader}, {"1.safetensors", kOtherHeader}}, index)),
      HasSubstr("is not after '1.safetensors'"));
}

TEST(LayoutTest, Contents) {
  EXPECT_THAT(InnerRefusal(Inner({}, "")), HasSubstr("claims 0 shards"));
  EXPECT_THAT(InnerRefusal(Inner({{"1.safetensors", "{"}}, "")), HasSubstr("1.safetensors"));
  const std::vector<LayoutShard> both = {{"1.safetensors", kHeader},
                                         {"2.safetensors", kOtherHeader}};
  EXPECT_THAT(InnerRefusal(Inner(both, "")), HasSubstr("2 shards and no index"));
  EXPECT_THAT(InnerRefusal(Inner(both, "{}")), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(InnerRefusal(Inner(both, R"({"weight_map":{"a":"1.safetensors"}})")),
              HasSubstr("the index names 1 shards that are not the layout's 2"));
  EXPECT_THAT(
      InnerRefusal(Inner(both, R"({"weight_map":{"b":"1.safetensors","a":"2.safetensors"}})")),
      HasSubstr("tensor 'a'"));
  const std::string index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  EXPECT_THAT(InnerRefusal(Inner({{"1.safetensors", kHeader}, {"2.safetensors", kHeader}}, index)),
              HasSubstr("tensor 'a': found in two shards"));
}

TEST(LayoutTest, InnerSizesThatLie) {
  const ByteVector good = Inner({{"model.safetensors", kHeader}}, "");
  for (std::size_t size = 0; size < good.size(); ++size) {
    InnerRefusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
  }
  ByteVector longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(InnerRefusal(longer), HasSubstr("1 bytes lie past the index"));
  for (const std::uint64_t size : {100'000'001ull, 1ull << 60, ~0ull}) {
    ByteVector inner = good;
    StoreLittle(inner.data() + 4 + 2 + 17, size);  // Header size of the only shard.
    InnerRefusal(inner);
    inner = good;
    StoreLittle(inner.data() + inner.size() - 8, size);  // Size of the index.
    InnerRefusal(inner);
  }
  for (const std::uint32_t count : {2u, 100'001u, ~0u}) {
    ByteVector inner = good;
    StoreLittle(inner.data(), count);
    InnerRefusal(inner);
  }
}

}  // namespace
}  // namespace segue
