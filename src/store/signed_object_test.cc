// SPDX-License-Identifier: Apache-2.0
//
// The golden files of signed objects, which the reference in Python makes and reads as well.
#include "store/signed_object.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/file.h"

namespace segue {
namespace {

const std::string kGolden = std::string(SEGUE_SOURCE_DIR) + "/tests/golden/signed/";

// The values of one line of cases.json, which is written one member a line.
std::string Value(const std::string& line) {
  const std::size_t begin = line.find(": ") + 2;
  std::string value = line.substr(begin, line.find_last_not_of(",") + 1 - begin);
  if (value.front() == '"') value = value.substr(1, value.size() - 2);
  return value;
}

TEST(SignedObjectTest, GoldenFiles) {
  std::vector<PublicKey> keys;
  for (const char* name : {"key.pem", "second.pem"}) {
    keys.push_back(PublicKey::Load(kGolden + name).value());
  }
  const ByteVector cases = ReadFile(kGolden + "cases.json", 1u << 20).value();
  std::string label;
  std::string name;
  int taken = 0;
  int refused = 0;
  std::string_view text = AsText(cases);
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find("\"label\"") != std::string::npos) label = Value(line);
    if (line.find("\"name\"") != std::string::npos) name = Value(line);
    if (line.find("\"taken\"") == std::string::npos) continue;
    const ByteVector object = ReadFile(kGolden + label + ".json", 1u << 20).value();
    const Status status = VerifyObject(keys, name, object);
    const bool expected = Value(line) == "true";
    ++(expected ? taken : refused);
    EXPECT_EQ(status.code(), expected ? StatusCode::kOk : StatusCode::kCorruption) << label;
  }
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(refused, 11);
}

TEST(SignedObjectTest, KindsByName) {
  EXPECT_TRUE(IsSignedKind("run/versions/0000000001.json"));
  EXPECT_TRUE(IsSignedKind("run/lineage.json"));
  EXPECT_FALSE(IsSignedKind("run/versions/0000000001.gone"));
  EXPECT_FALSE(IsSignedKind("run/plans/0123"));
}

}  // namespace
}  // namespace segue
