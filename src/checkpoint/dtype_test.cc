// SPDX-License-Identifier: Apache-2.0
//
// Goal: the table in code is the table in docs/format.md. The document is read and compared, so
// that neither changes alone.
#include "checkpoint/dtype.h"

#include <gtest/gtest.h>

#include <charconv>
#include <regex>
#include <string>

#include "base/bytes.h"
#include "base/file.h"

namespace segue {
namespace {

unsigned Number(const std::string& digits) {
  unsigned value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  EXPECT_EQ(result.ec, std::errc());
  return value;
}

TEST(DtypeTest, EqualsTheFormatDocument) {  // case A7
  const ByteVector document =
      ReadFile(std::string(SEGUE_SOURCE_DIR) + "/docs/format.md", 1 << 20).value();
  const std::string text(AsText(document));
  const std::regex row(R"(\| (\d+) \| ([A-Z0-9_]+) \| (\d+) \| (\d+) \|)");
  int count = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), row), end; match != end; ++match) {
    const auto code = static_cast<std::uint8_t>(Number((*match)[1]));
    SCOPED_TRACE((*match)[2].str());
    const std::optional<Dtype> dtype = DtypeFromCode(code);
    ASSERT_TRUE(dtype.has_value());
    EXPECT_EQ(DtypeName(*dtype), (*match)[2].str());
    EXPECT_EQ(DtypeFromName((*match)[2].str()), dtype);
    EXPECT_EQ(DtypeBits(*dtype), Number((*match)[3]));
    EXPECT_EQ(DtypeWidth(*dtype), Number((*match)[4]));
    ++count;
  }
  // The table has two columns; the expression above finds both where they share a separator.
  EXPECT_EQ(count, 22);
}

TEST(DtypeTest, UnknownCodesAndNamesAreRefused) {  // case A7
  EXPECT_FALSE(DtypeFromCode(0).has_value());
  EXPECT_FALSE(DtypeFromCode(23).has_value());
  EXPECT_FALSE(DtypeFromCode(255).has_value());
  EXPECT_FALSE(DtypeFromName("").has_value());
  EXPECT_FALSE(DtypeFromName("X9").has_value());
  EXPECT_FALSE(DtypeFromName("bf16").has_value());
}

}  // namespace
}  // namespace segue
