// SPDX-License-Identifier: Apache-2.0
//
// JsonFields: typed reading of flat objects; every wrong or missing field is named.
#include "sync/json_fields.h"

#include <gtest/gtest.h>

#include "checkpoint/testing.h"

namespace segue {
namespace {

TEST(JsonFieldsTest, TypesAreChecked) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.File("fields.json");
  JsonFields fields("segue-test");
  fields.Set("text", "not a digest");
  fields.Set("number", std::uint64_t{1} << 60);
  test::WriteFile(path, fields.ToText());
  const auto found = JsonFields::Read(path, "segue-test");
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  std::uint64_t number = 0;
  EXPECT_TRUE(found.value().Get("number", number).ok());
  EXPECT_EQ(number, std::uint64_t{1} << 60);
  EXPECT_EQ(found.value().Get("text", number).code(), StatusCode::kCorruption);
  std::string text;
  EXPECT_EQ(found.value().Get("number", text).code(), StatusCode::kCorruption);
  Digest digest;
  EXPECT_EQ(found.value().Get("text", digest).code(), StatusCode::kCorruption);
  Sha256 hash;
  const Status missing = found.value().Get("absent", hash);
  EXPECT_NE(missing.message().find("'absent'"), std::string::npos);
}

TEST(JsonFieldsTest, OneMeaningAndLittleMemory) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.File("fields.json");
  const std::string begin = R"({"format": "segue-test", "format_version": 1, "a": )";
  test::WriteFile(path, begin + "1}");
  EXPECT_TRUE(JsonFields::Read(path, "segue-test").ok());
  const auto refused = [&](const std::string& text, const std::string& why) {
    test::WriteFile(path, text);
    const Status status = JsonFields::Read(path, "segue-test").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_EQ(status.message(), "'" + path + "' " + why);
  };
  refused(begin + "1", "is not JSON");
  refused(begin + R"(1, "a": 2})", "has the key 'a' twice");
  refused(std::string(1 << 20, '['), "is nested more than 128 deep");
}

}  // namespace
}  // namespace segue
