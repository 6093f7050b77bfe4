// SPDX-License-Identifier: Apache-2.0
//
// Goal: names are those of docs/format.md, section 8, to the letter, and no other name passes for
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "delta/manifest.h"

namespace segue {
namespace {

using testing::HasSubstr;

TEST(ObjectNameTest, LineageNames) {  // case B5
  const std::string longest(limits::kLineageNameSizeMax, 'a');
  for (const std::string& name : {std::string("a"), std::string("Run_1.x-2"), std::string("-"),
                                  std::string("a..b"), longest}) {
    EXPECT_TRUE(CheckLineageName(name).ok()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string(".a"), std::string("a/b"),
        std::string("/a"), std::string("a\\b"), std::string("C:x"), std::string("a b"),
        std::string("a\0b", 3), std::string("\xc3\xa9"), longest + "a"}) {
    EXPECT_EQ(CheckLineageName(name).code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_THAT(CheckLineageName("a/b").message(), HasSubstr("found '/' at byte 1"));
}

TEST(ObjectNameTest, NamesOfTheDocument) {
  Sha256 hash;
  hash.bytes.fill(std::byte{0xab});
  EXPECT_EQ(object_name::Lineage("run"), "run/lineage.json");
  EXPECT_EQ(object_name::Plan("run", hash), "run/plans/" + hash.ToHex());
  EXPECT_EQ(object_name::Layout("run", hash), "run/layouts/" + hash.ToHex());
  EXPECT_EQ(object_name::VersionFolder("run"), "run/versions");
  EXPECT_EQ(object_name::Version("run", 12), "run/versions/0000000012.json");
  EXPECT_EQ(object_name::Version("run", limits::kVersionMax), "run/versions/9999999999.json");
  EXPECT_EQ(object_name::PayloadFolder("run", 12), "run/payloads/0000000012");
  EXPECT_EQ(object_name::Payload("run", 12, 3, 65536, hash),
            "run/payloads/0000000012/00003-of-65536-abababababababab");
  EXPECT_EQ(object_name::OwnerFolder("run", 12, "s1"), "run/owners/0000000012/s1");
  EXPECT_EQ(object_name::Owner("run", 12, "s1", 3, 8),
            "run/owners/0000000012/s1/00003-of-00008.json");
  EXPECT_EQ(object_name::Owner("run", 12, "s1", 3, 8, "0123456789abcdef"),
            "run/owners/0000000012/s1/00003-of-00008-0123456789abcdef.json");
  EXPECT_EQ(object_name::Round("run", 12, "s1", "0123456789abcdef"),
            "run/owners/0000000012/s1/0123456789abcdef.round");
}

TEST(ObjectNameTest, Rounds) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    const std::string round = object_name::RoundName(number);
    EXPECT_EQ(round.size(), 16u);
    EXPECT_EQ(object_name::ParseRound(round + ".round"), round);
  }
  EXPECT_NE(object_name::RoundName(1), object_name::RoundName(2));
  for (const char* name : {"", ".round", "0123456789abcde.round", "0123456789abcdef0.round",
                           "0123456789ABCDEF.round", "0123456789abcdef.json",
                           "00003-of-00008-0123456789abcdef.json", "../456789abcdef01.round"}) {
    EXPECT_EQ(object_name::ParseRound(name), std::nullopt) << name;
  }
}

TEST(ObjectNameTest, ParsesVersionsAlone) {  // case B5
  EXPECT_EQ(object_name::ParseVersion("0000000012.json"), 12u);
  EXPECT_EQ(object_name::ParseVersion("0000000000.json"), 0u);
  EXPECT_EQ(object_name::ParseVersion("9999999999.json"), limits::kVersionMax);
  EXPECT_EQ(object_name::Gone("run", 12), "run/versions/0000000012.gone");
  EXPECT_EQ(object_name::ParseGone("0000000012.gone"), 12u);
  EXPECT_EQ(object_name::ParseGone("0000000012.json"), std::nullopt);
  EXPECT_EQ(object_name::ParseVersion("0000000012.gone"), std::nullopt);
  for (const char* name :
       {"", ".", "..", "a/b", ".json", "..json", "12.json", "00000000012.json", "000000012.json",
        "0000000012.JSON", "0000000012.json ", "0000000012jjson", "000000001a.json",
        "+000000012.json", "-000000012.json", " 000000012.json", "0x00000012.json",
        "a/00000012.json", ".tmp000012.json"}) {
    EXPECT_EQ(object_name::ParseVersion(name), std::nullopt) << name;
  }
}

TEST(ObjectNamesTest, Anchors) {
  EXPECT_EQ(object_name::AnchorFolder("run", "eval"), "run/anchors/eval");
  EXPECT_EQ(object_name::Anchor("run", "eval", 40, 123),
            "run/anchors/eval/0000000040-0000000123.json");
  EXPECT_EQ(object_name::AnchorPayload("run", "eval", 40, 123, HashSha256({})),
            "run/anchors/eval/0000000040-0000000123/00000-of-00001-e3b0c44298fc1c14");
  const auto range = object_name::ParseAnchor("0000000040-0000000123.json");
  ASSERT_TRUE(range);
  EXPECT_EQ(*range, (std::pair<std::uint64_t, std::uint64_t>(40, 123)));
  for (const char* name :
       {"", "0000000040", "0000000040-", "0000000040-123.json", "0000000040_0000000123.json",
        "000000004a-0000000123.json", "0000000040-0000000123", "0000000040-0000000123.json.json"}) {
    EXPECT_FALSE(object_name::ParseAnchor(name)) << name;
  }
}

}  // namespace
}  // namespace segue
