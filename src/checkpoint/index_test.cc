// SPDX-License-Identifier: Apache-2.0
//
// Goal: an index is read whole or refused with the reason, and no bad shard name gets past it.
#include "checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace segue {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kPath[] = "dir/model.safetensors.index.json";

Result<IndexFile> Parse(std::string_view json) {
  const ByteVector exact(AsBytes(json).begin(), AsBytes(json).end());
  return ParseIndex(exact, kPath);
}

std::string Refusal(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(kPath));
  return status.message();
}

std::string Refusal(std::string_view json) { return Refusal(Parse(json).status()); }

TEST(IndexTest, SortsShardsAndTensors) {
  const IndexFile index =
      Parse(R"({"metadata":{"total_size":123,"x":[1,{"y":null}]},"weight_map":{)"
            R"("b":"2.safetensors","a":"1.safetensors","c":"2.safetensors"}})")
          .value();
  EXPECT_THAT(index.shards, ElementsAre("1.safetensors", "2.safetensors"));
  ASSERT_EQ(index.entries.size(), 3u);
  EXPECT_EQ(index.entries[0].tensor, "a");
  EXPECT_EQ(index.entries[0].shard, 0u);
  EXPECT_EQ(index.entries[1].tensor, "b");
  EXPECT_EQ(index.entries[1].shard, 1u);
  EXPECT_EQ(index.entries[2].shard, 1u);
}

TEST(IndexTest, BadShardNamesAreListedTogether) {  // case B5
  const std::string message =
      Refusal(R"({"weight_map":{"a":"../x.safetensors","b":"/etc/x","c":"a/../../x",)"
              R"("d":"C:\\x","e":"","f":"x\u0000y","g":"good.safetensors",)"
              R"("h":".hidden.safetensors","i":"x.bin"}})");
  EXPECT_THAT(message, AllOf(HasSubstr("'../x.safetensors' begins with '.'"),
                             HasSubstr("'/etc/x' is a path"), HasSubstr("'a/../../x' is a path"),
                             HasSubstr("'C:\\x' is a path"), HasSubstr("'' is empty"),
                             HasSubstr("'x\\x00y' holds a control character"),
                             HasSubstr("'.hidden.safetensors' begins with '.'"),
                             HasSubstr("'x.bin' does not end in '.safetensors'")));
  EXPECT_EQ(message.find("good"), std::string::npos);
}

TEST(IndexTest, ShardNames) {  // case B5
  for (const char* name : {"model.safetensors", "model-00001-of-00004.safetensors",
                           "diffusion pytorch_model.fp16.safetensors", "模型.safetensors"}) {
    EXPECT_TRUE(CheckShardName(name).ok()) << name;
  }
  const std::string nul("x\0.safetensors", 14);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string(".safetensors"),
        std::string("../x.safetensors"), std::string("/x.safetensors"),
        std::string("a/x.safetensors"), std::string("C:\\x.safetensors"), nul,
        std::string("x\n.safetensors"), std::string("x\x7f.safetensors"), std::string("x"),
        std::string("x.safetensors "), std::string("x.safetensors/"), std::string("x.SAFETENSORS"),
        std::string(244, 'a') + ".safetensors"}) {
    EXPECT_EQ(CheckShardName(name).code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(CheckShardName(std::string(243, 'a') + ".safetensors").ok());
}

TEST(IndexTest, WeightMapFaults) {
  EXPECT_THAT(Refusal("{}"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(Refusal(R"({"metadata":{}})"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(Refusal(R"({"weight_map":{}})"), HasSubstr("names no tensors"));
  EXPECT_THAT(Refusal(R"({"weight_map":[]})"), HasSubstr("'weight_map' is not an object"));
  EXPECT_THAT(Refusal(R"({"weight_map":null})"), HasSubstr("'weight_map' is not an object"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":1}})"),
              HasSubstr("tensor 'a': the shard name is not a string"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"x.safetensors"},"weight_map":{"a":"x.safetensors"}})"),
              HasSubstr("'weight_map' appears twice"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"x.safetensors","\u0061":"y.safetensors"}})"),
              HasSubstr("tensor 'a': appears twice"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"":"x.safetensors"}})"), HasSubstr("empty tensor name"));
}

TEST(IndexTest, MustBeJsonThroughout) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string("{\"weight_map\":"),
        std::string("{\"weight_map\":{\"a\":\"x.safetensors\"}"),
        std::string("{\"weight_map\":{\"a\":\"x.safetensors\"}}x"),
        std::string("{\"weight_map\":{\"a\":\"x.safetensors\"}}}"),
        std::string("{\"weight_map\":{\"a\":\"x.safetensors\",}}"),
        std::string("{\"weight_map\":{\"a\" \"x.safetensors\"}}"),
        std::string("{\"weight_map\":{\"a\xff\":\"x.safetensors\"}}"),
        std::string("{\"metadata\":{nul},\"weight_map\":{\"a\":\"x.safetensors\"}}")}) {
    SCOPED_TRACE(text);
    Refusal(text);
  }
}

TEST(IndexTest, MustMatchTheShards) {
  const IndexFile index =
      Parse(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})").value();
  const auto check = [&index](std::vector<IndexedTensor> tensors) {
    return CheckIndexMatches(index, tensors, kPath);
  };
  EXPECT_TRUE(check({{"a", 0}, {"c", 1}}).ok());
  EXPECT_THAT(Refusal(check({{"a", 0}})),
              HasSubstr("tensor 'c': 'weight_map' says shard '2.safetensors', no shard holds it"));
  EXPECT_THAT(Refusal(check({{"c", 1}})),
              HasSubstr("tensor 'a': 'weight_map' says shard '1.safetensors', no shard holds it"));
  EXPECT_THAT(Refusal(check({{"a", 0}, {"c", 0}})),
              HasSubstr("tensor 'c': 'weight_map' says shard '2.safetensors', found in shard "
                        "'1.safetensors'"));
  for (const char* name : {"Z", "b", "d"}) {
    std::vector<IndexedTensor> tensors = {{"a", 0}, {"c", 1}, {name, 1}};
    std::sort(tensors.begin(), tensors.end(),
              [](const IndexedTensor& x, const IndexedTensor& y) { return x.name < y.name; });
    EXPECT_THAT(Refusal(check(tensors)),
                HasSubstr("tensor '" + std::string(name) +
                          "': found in shard '2.safetensors', 'weight_map' does not name it"));
  }
  EXPECT_THAT(Refusal(check({{"a", 0}, {"a", 1}, {"c", 1}})),
              HasSubstr("tensor 'a': found in two shards, '1.safetensors' and '2.safetensors'"));
}

}  // namespace
}  // namespace segue
