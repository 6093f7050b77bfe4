// SPDX-License-Identifier: Apache-2.0
//
// Goal: SkipJsonValue takes exactly the values of RFC 8259. The header parser's tests cover the
// rest.
#include "checkpoint/json.h"

#include <gtest/gtest.h>

#include <string>

namespace segue {
namespace {

// Whether {"v":<value>} is taken whole.
bool Takes(const std::string& value) {
  JsonObjectReader reader;
  if (!reader.Open(AsBytes("{\"v\":" + value + "}"), "text").ok()) return false;
  for (auto item : reader.root()) {
    simdjson::ondemand::field field;
    std::string_view key;
    if (std::move(item).get(field) != simdjson::SUCCESS) return false;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS || key != "v") return false;
    if (SkipJsonValue(field.value()) != simdjson::SUCCESS) return false;
  }
  return reader.Finish().ok();
}

TEST(JsonTest, TakesJson) {
  for (const char* value : {"0",
                            "-0",
                            "1",
                            "-1",
                            "1.5",
                            "1e9",
                            "-1.5E-3",
                            "true",
                            "false",
                            "null",
                            "\"\"",
                            "\"\\u00e9\"",
                            "\"\\ud83d\\ude00\"",
                            "[]",
                            "{}",
                            "[1,2]",
                            " [ 1 , 2 ] ",
                            "{\"a\":[{}]}",
                            "18446744073709551615",
                            "\"\xc3\xa9\""}) {
    EXPECT_TRUE(Takes(value)) << value;
  }
}

TEST(JsonTest, RefusesTheRest) {
  for (const char* value : {"",
                            "01",
                            "1.",
                            ".5",
                            "+1",
                            "1e",
                            "--1",
                            "0x1",
                            "NaN",
                            "Infinity",
                            "tru",
                            "truex",
                            "True",
                            "nul",
                            "nulll",
                            "'a'",
                            "\"\\x41\"",
                            "\"\\u12\"",
                            "\"\\ud800\"",
                            "\"\\ud800\\u0041\"",
                            "\"a",
                            "\"\x01\"",
                            "\"\xff\"",
                            "[",
                            "]",
                            "[1,]",
                            "[,1]",
                            "[1 2]",
                            "{\"a\"}",
                            "{\"a\":}",
                            "{a:1}",
                            "{\"a\":1,}",
                            "{\"a\":1 \"b\":2}",
                            "{,}",
                            "1,",
                            "1 2",
                            "[}",
                            "{]",
                            "1}",
                            "// c"}) {
    EXPECT_FALSE(Takes(value)) << value;
  }
}

TEST(JsonTest, BoundsNesting) {
  EXPECT_TRUE(Takes(std::string(128, '[') + std::string(128, ']')));
  EXPECT_FALSE(Takes(std::string(129, '[') + std::string(129, ']')));
}

}  // namespace
}  // namespace segue
