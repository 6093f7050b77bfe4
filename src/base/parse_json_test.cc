// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside: at each limit and one beyond it, and that a refused text costs no memory.
#include "base/parse_json.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <string>

#include "base/failing_new.h"

namespace segue {
namespace {

using Json = nlohmann::json;

Status Check(std::string_view text) { return CheckJson(text, limits::kJsonSmallValuesMax); }

void ExpectRefused(std::string_view text, StatusCode code, std::string_view message) {
  const Status status = Check(text);
  EXPECT_EQ(status.code(), code) << text.substr(0, 80);
  EXPECT_EQ(status.message(), message) << text.substr(0, 80);
}

std::string Repeat(std::string_view part, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

TEST(ParseJsonTest, BuildsWhatIsWithinTheLimits) {
  const auto json = ParseJson<nlohmann::ordered_json>(
      R"({"b": [1, -2, 2.5, true, null], "a": {"b": "\"[{"}, "c": {}})", 12);
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(json->dump(), R"({"b":[1,-2,2.5,true,null],"a":{"b":"\"[{"},"c":{}})");
  EXPECT_EQ(ParseJson<Json>("7", 1).value(), 7);
}

// The library's own trees end the program here: their end allocates.
TEST(ParseJsonTest, MemoryThatRunsOutAtAnyAllocationEndsInBadAlloc) {
  const std::string text = R"({"a": [1, {"long enough to be no small string": [[], {}]}, "x"],)"
                           R"("b": {"c": {"d": [[[1, 2], 3], {"e": null}]}}, "f": [0, 1, 2, 3]})";
  bool whole = false;
  for (long allocations = 0; !whole; ++allocations) {
    const test::NewFailsAfter failing(allocations);
    try {
      const auto json = ParseJson<Json>(text, 100);
      whole = json.ok() && json->size() == 3;
    } catch (const std::bad_alloc&) {
    }
  }
  auto json = ParseJson<Json>(text, 100).value();
  const test::NewFailsAfter failing(0);
  JsonTree<Json> other = std::move(json);
  json = std::move(other);
}

TEST(ParseJsonTest, RefusesWhatIsNotJson) {
  for (const char* const text : {"", " ", "{", "]", "[1,]", "{1: 2}", "[1] 2", "// 1", "1e999",
                                 "\"\xff\"", "[NaN]", "{\"a\" 1}", "[}"}) {
    ExpectRefused(text, StatusCode::kCorruption, "is not JSON");
    EXPECT_EQ(ParseJson<Json>(text, 10).status().code(), StatusCode::kCorruption) << text;
  }
}

TEST(ParseJsonTest, DepthIsBounded) {
  const std::size_t most = limits::kJsonDepthMax;
  EXPECT_TRUE(Check(Repeat("[", most) + Repeat("]", most)).ok());
  EXPECT_TRUE(Check(Repeat("{\"a\":", most) + "0" + Repeat("}", most)).ok());
  const std::string message = "is nested more than 128 deep";
  ExpectRefused(Repeat("[", most + 1) + Repeat("]", most + 1), StatusCode::kUnsupported, message);
  ExpectRefused(Repeat("{\"a\":", most + 1) + "0" + Repeat("}", most + 1), StatusCode::kUnsupported,
                message);
  // Brackets in strings, and those that are closed again, nest nothing.
  EXPECT_TRUE(Check("[\"" + Repeat("[", 1000) + "\"]").ok());
  EXPECT_TRUE(Check("[" + Repeat("[],", 1000) + "0]").ok());
}

TEST(ParseJsonTest, ValuesAreBounded) {
  EXPECT_TRUE(CheckJson("[1,{\"a\":2},[]]", 5).ok());
  EXPECT_EQ(CheckJson("[1,{\"a\":2},[]]", 4).message(), "has more than 4 values");
  for (const char* const part : {"1,", "[],", "{},", "\"\",", "null,", "true,", "1.5,", "-1,"}) {
    const std::size_t most = limits::kJsonSmallValuesMax - 2;
    EXPECT_TRUE(Check("[" + Repeat(part, most) + "0]").ok()) << part;
    ExpectRefused("[" + Repeat(part, most + 1) + "0]", StatusCode::kUnsupported,
                  "has more than 10000 values");
  }
}

TEST(ParseJsonTest, AKeyIsThereOnce) {
  ExpectRefused(R"({"a": 1, "b": 2, "a": 1})", StatusCode::kUnsupported, "has the key 'a' twice");
  ExpectRefused(R"([{"x": {"a": 1, "\u0061": 2}}])", StatusCode::kUnsupported,
                "has the key 'a' twice");
  EXPECT_TRUE(Check(R"([{"a": {"a": 1}}, {"a": 1}, {"A": 1, "a": 2}])").ok());
  const std::string key(100, 'k');
  ExpectRefused("{\"" + key + "\":1,\"" + key + "\":2}", StatusCode::kUnsupported,
                "has the key '" + key.substr(0, 64) + "...' twice");
}

// The largest size of this process so far, in KiB.
long LargestSize() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

TEST(ParseJsonTest, ARefusedTextCostsNoMemory) {
  const std::string deep(std::size_t{31} << 20, '[');
  std::string wide = "[" + Repeat("[],", std::size_t{10} << 20) + "0]";
  const long before = LargestSize();
  EXPECT_FALSE(ParseJson<Json>(deep, 1'000'000).ok());
  EXPECT_FALSE(ParseJson<Json>(wide, limits::kJsonAnswerValuesMax).ok());
  EXPECT_LT(LargestSize() - before, 8 << 10);
}

}  // namespace
}  // namespace segue
