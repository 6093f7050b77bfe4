// SPDX-License-Identifier: Apache-2.0
//
// Spool: what was appended is read back, on either side of the limit, any number of times.
#include "store/spool.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/test_support.h"

namespace segue {
namespace {

TEST(SpoolTest, ReadsBackWhatWasAppended) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{limits::kSpoolMemoryMax},
        std::size_t{limits::kSpoolMemoryMax + 1}, std::size_t{5'000'000}}) {
    const ByteVector bytes = Pattern(7, size);
    Spool spool;
    for (std::size_t offset = 0; offset < size; offset += 300'000) {
      const std::size_t part = std::min<std::size_t>(300'000, size - offset);
      ASSERT_TRUE(spool.Append(ByteSpan(bytes).subspan(offset, part)).ok());
    }
    EXPECT_EQ(spool.size(), size);
    EXPECT_EQ(spool.Finish(), HashSha256(bytes));
    for (int round = 0; round < 2; ++round) {
      ByteVector back(size);
      ASSERT_TRUE(spool.Read(0, back).ok());
      EXPECT_EQ(back, bytes);
    }
    if (size < 10) continue;
    ByteVector tail(10);
    ASSERT_TRUE(spool.Read(size - 10, tail).ok());
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), bytes.end() - 10));
  }
}

TEST(SpoolTest, AFolderThatIsNotThereFailsForGood) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", "/nowhere/at/all", 1);
  Spool spool;
  EXPECT_TRUE(spool.Append(Pattern(1, 100)).ok());
  EXPECT_FALSE(spool.Append(Pattern(1, limits::kSpoolMemoryMax)).ok());
  EXPECT_FALSE(spool.Append({}).ok());
  if (before != nullptr) {
    ::setenv("TMPDIR", kept.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
}

}  // namespace
}  // namespace segue
