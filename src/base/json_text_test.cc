// SPDX-License-Identifier: Apache-2.0
//
// JSON text: what is written is what the library would write, and the library reads it back.
#include "base/json_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace segue {
namespace {

TEST(JsonTextTest, IsWhatTheLibraryWrites) {
  const std::string odd = "a\"b\\c\n\x01 \xc3\xa9 \xff end";
  const std::vector<std::string> names = {"x", odd, ""};
  const std::vector<std::uint64_t> numbers = {0, std::numeric_limits<std::uint64_t>::max()};
  JsonObjectText inner;
  inner.Add("seconds", 0.125).Add("huge", 1e300);
  JsonObjectText object;
  object.Add("yes", true).Add("text", odd).Add("number", numbers[1]).Add("negative", -7);
  object.Add("literal", "plain").Add("view", std::string_view("seen"));
  object.AddText("names", JsonList(names)).AddText("numbers", JsonList(numbers));
  object.AddText("inner", inner.Text()).AddText("none", JsonListOfTexts({}));
  const nlohmann::ordered_json same = {{"yes", true},
                                       {"text", odd},
                                       {"number", numbers[1]},
                                       {"negative", -7},
                                       {"literal", "plain"},
                                       {"view", "seen"},
                                       {"names", names},
                                       {"numbers", numbers},
                                       {"inner", {{"seconds", 0.125}, {"huge", 1e300}}},
                                       {"none", nlohmann::ordered_json::array()}};
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  EXPECT_EQ(object.Text(), same.dump(-1, ' ', false, replace));
  EXPECT_TRUE(nlohmann::json::parse(object.Text()).is_object());
  EXPECT_EQ(JsonObjectText().Text(), "{}");
}

}  // namespace
}  // namespace segue
