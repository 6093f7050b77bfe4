// SPDX-License-Identifier: Apache-2.0
//
// The XML reader: what S3 servers send is read, everything else is refused.
#include "store/xml.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace segue {
namespace {

Result<XmlElement> Parse(const std::string& text) { return ParseXml(AsBytes(text)); }

TEST(XmlTest, ReadsAListing) {
  const auto root = Parse(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
      "  <Name>b</Name><Prefix/><IsTruncated>true</IsTruncated>\n"
      "  <Contents><Key>a&amp;b&#x41;&#233;</Key><Size>3</Size></Contents>\n"
      "  <Contents><Key>c</Key></Contents>\n"
      "  <s3:Other a='1' b = \"2\"></s3:Other >"
      "</ListBucketResult>\n");
  EXPECT_FALSE(root.ok());  // "b = " is not what any server writes.
  const auto listing = Parse(
      "\xef\xbb\xbf<?xml version=\"1.0\"?><L xmlns='x'><Prefix/><IsTruncated>true</IsTruncated>"
      "<C><Key>a&amp;b&#x41;&#233;</Key></C><C><Key>c</Key></C><s3:O a='1'>&lt;&gt;</s3:O ></L>");
  ASSERT_TRUE(listing.ok()) << listing.status().ToString();
  EXPECT_EQ(listing->name, "L");
  EXPECT_EQ(listing->ChildText("IsTruncated"), "true");
  EXPECT_EQ(listing->ChildText("Prefix"), "");
  EXPECT_EQ(listing->ChildText("O"), "<>");
  EXPECT_EQ(listing->Child("None"), nullptr);
  ASSERT_EQ(listing->children.size(), 5u);
  EXPECT_EQ(listing->children[2].ChildText("Key"), "a&bA\xc3\xa9");
}

TEST(XmlTest, RefusesWhatIsNone) {
  for (const char* const text : {"",
                                 " ",
                                 "x",
                                 "<",
                                 "<a",
                                 "<a>",
                                 "<a></b>",
                                 "<a></a",
                                 "<a/><b/>",
                                 "<a/>x",
                                 "<a><b></a></b>",
                                 "<a>&nope;</a>",
                                 "<a>&lt</a>",
                                 "<a>&#0;</a>",
                                 "<a>&#xd800;</a>",
                                 "<a>&#x110000;</a>",
                                 "<a>&#;</a>",
                                 "<a>&#99999999999999;</a>",
                                 "<!DOCTYPE a><a/>",
                                 "<a><!-- x --></a>",
                                 "<a><![CDATA[x]]></a>",
                                 "<a><?php ?></a>",
                                 "<a b></a>",
                                 "<a b=c></a>",
                                 "<a b='></a>",
                                 "<?xml <a/>",
                                 "< a/>",
                                 "<:a/>",
                                 "<a:/>",
                                 "<a:b:c/>",
                                 "<:/>",
                                 "<a b='<'/>"}) {
    EXPECT_EQ(Parse(text).status().code(), StatusCode::kCorruption) << text;
  }
  EXPECT_FALSE(Parse(std::string("<a>\0</a>", 8)).ok());
}

TEST(XmlTest, IsBounded) {
  const auto nested = [](unsigned depth) {
    std::string text;
    for (unsigned i = 0; i < depth; ++i) text += "<a>";
    for (unsigned i = 0; i < depth; ++i) text += "</a>";
    return text;
  };
  EXPECT_TRUE(Parse(nested(limits::kXmlDepthMax)).ok());
  EXPECT_FALSE(Parse(nested(limits::kXmlDepthMax + 1)).ok());
  EXPECT_FALSE(Parse(nested(1'000'000)).ok());
  std::string many = "<a>";
  for (unsigned i = 0; i < limits::kXmlElementCountMax; ++i) many += "<b/>";
  EXPECT_FALSE(Parse(many + "</a>").ok());
  EXPECT_FALSE(Parse("<a>" + std::string(limits::kXmlSizeMax, ' ') + "</a>").ok());
}

TEST(XmlTest, EscapedTextIsReadBack) {
  const std::string text = "a<b>&\"'c";
  EXPECT_EQ(Parse("<x>" + EscapeXml(text) + "</x>")->text, text);
}

}  // namespace
}  // namespace segue
