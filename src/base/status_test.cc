// SPDX-License-Identifier: Apache-2.0
//
// Goal: success is free and silent, failures keep code and message, the two macros forward them,
// and our own bugs (value() of a failure, a failed check) end the program with a sentence.
#include "segue/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/check.h"

namespace segue {
namespace {

TEST(StatusTest, SuccessSaysOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(status.WithContext("shard 3").ok());
}

TEST(StatusTest, FailureKeepsCodeAndMessageAndTakesContext) {
  const Status status = Corruption("digest 9f.., expected 41..");
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_EQ(status.ToString(), "corruption: digest 9f.., expected 41..");
  const Status outer = status.WithContext("tensor 'w.7'").WithContext("version 4");
  EXPECT_EQ(outer.code(), StatusCode::kCorruption);
  EXPECT_EQ(outer.message(), "version 4: tensor 'w.7': digest 9f.., expected 41..");
}

TEST(StatusTest, EveryConstructorGivesItsCode) {
  const std::pair<Status, std::string_view> cases[] = {
      {InvalidArgument("m"), "invalid_argument"},
      {NotFound("m"), "not_found"},
      {VersionMismatch("m"), "version_mismatch"},
      {Corruption("m"), "corruption"},
      {Unsupported("m"), "unsupported"},
      {ResourceExhausted("m"), "resource_exhausted"},
      {Unavailable("m"), "unavailable"},
      {Tainted("m"), "tainted"},
      {Internal("m"), "internal"},
  };
  int code = 0;
  for (const auto& [status, name] : cases) {
    EXPECT_EQ(static_cast<int>(status.code()), ++code);
    EXPECT_EQ(StatusCodeName(status.code()), name);
  }
}

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  SEGUE_ASSIGN_OR_RETURN(const int half, Half(value));
  SEGUE_ASSIGN_OR_RETURN(int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int value) {
  SEGUE_RETURN_IF_ERROR(Quarter(value).status());
  return {};
}

TEST(ResultTest, MacrosForwardFailures) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(CheckQuarter(4).ok());
  EXPECT_EQ(CheckQuarter(3).code(), StatusCode::kInvalidArgument);
}

TEST(ResultTest, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(ResultTest, SuccessIsNoFailure) {
  const Result<int> result{Status()};
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

TEST(StatusDeathTest, BugsEndTheProgramWithASentence) {
  Result<int> failed = NotFound("no version 9");
  EXPECT_DEATH(static_cast<void>(failed.value()),
               "segue: value\\(\\) of a failed Result: not_found: no version 9");
  EXPECT_DEATH(SEGUE_CHECK(failed.ok()), "check failed: failed.ok\\(\\)");
}

}  // namespace
}  // namespace segue
