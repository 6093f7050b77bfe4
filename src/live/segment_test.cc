// SPDX-License-Identifier: Apache-2.0
//
// Segment: life cycle, names, and who may have it when.
#include "live/segment.h"

#include <gmock/gmock.h>

#include <cstring>

#include "live/testing.h"

namespace segue {
namespace {

using test::Child;
using test::SegmentName;
using test::SmallPlan;
using ::testing::HasSubstr;

TEST(Segment, BeginsLoadingWithTheGateClosed) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EXPECT_EQ(segment->phase(), Phase::kLoading);
  EXPECT_TRUE(segment->gate().closed());
  EXPECT_EQ(segment->engine_count(), 0u);
  const LiveVersion version = segment->version();
  EXPECT_EQ(version.lineage, "main");
  EXPECT_EQ(version.version, 0u);
  EXPECT_EQ(version.applied_count, 0u);
}

}  // namespace
}  // namespace segue
