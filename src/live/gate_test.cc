// SPDX-License-Identifier: Apache-2.0
//
// CallbackGate: hands on the deadline and what the calls return.
#include "live/gate.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

using std::chrono::milliseconds;

TEST(CallbackGate, CallsWhatItWasMadeFrom) {
  milliseconds seen{0};
  int open_count = 0;
  CallbackGate gate(
      [&](milliseconds deadline) {
        seen = deadline;
        return Unavailable("busy");
      },
      [&] {
        ++open_count;
        return Status();
      });
  EXPECT_EQ(gate.Close(milliseconds(7)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(seen, milliseconds(7));
  EXPECT_TRUE(gate.Open().ok());
  EXPECT_EQ(open_count, 1);
}

}  // namespace
}  // namespace segue
