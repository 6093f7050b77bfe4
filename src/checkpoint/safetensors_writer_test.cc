// SPDX-License-Identifier: Apache-2.0
//
// Goal: what the writer writes is what the reference library writes, and the parser reads it back.
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/safetensors.h"

namespace segue {
namespace {

TEST(SafetensorsWriterTest, TextOfTheReferenceWriter) {
  const std::string text = MakeSafetensorsHeader(
      {{{"b", Dtype::kF32, {2}}, 0, 8}, {{"a", Dtype::kBF16, {}}, 8, 2}}, {{"format", "pt"}});
  EXPECT_EQ(
      text,
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})"
      "     ");
  EXPECT_EQ(text.size() % 8, 0u);
  EXPECT_EQ(MakeSafetensorsHeader({}, {}), "{}      ");
}

TEST(SafetensorsWriterTest, StringsAreEscapedAndReadBack) {
  const std::string name("q\"b\\s/\b\f\n\r\t\x01\x1f\0é😀", 20);
  const std::map<std::string, std::string> metadata = {{name, name}, {"", ""}};
  const std::string text = MakeSafetensorsHeader({{{name, Dtype::kU8, {1}}, 0, 1}}, metadata);
  EXPECT_NE(text.find("q\\\"b\\\\s/\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000é😀"), std::string::npos);
  const SafetensorsHeader header = ParseSafetensorsHeader(AsBytes(text), "file").value();
  EXPECT_EQ(header.entries.at(0).spec.name, name);
  EXPECT_EQ(header.metadata, metadata);
}

}  // namespace
}  // namespace segue
