// SPDX-License-Identifier: Apache-2.0
//
// Goal: the fuzz targets' seeds are what their names say: those that begin with "valid" are taken,
// all others are refused. A replay alone would not notice a reader that refuses everything.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "checkpoint/index.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "checkpoint/safetensors.h"

namespace segue {
namespace {

void ExpectVerdicts(const std::string& target, const std::function<Status(ByteSpan)>& parse) {
  const std::string directory = std::string(SEGUE_SOURCE_DIR) + "/tests/fuzz/corpus/" + target;
  const std::vector<std::string> names = ListDirectory(directory).value();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    // Inner bytes of layouts; only the fuzz target wraps them.
    if (name.starts_with("inner_") || name.starts_with("valid_inner_")) continue;
    const ByteVector bytes = ReadFile(JoinPath(directory, name), 1 << 20).value();
    const Status status = parse(bytes);
    EXPECT_EQ(status.ok(), name.starts_with("valid_")) << name << ": " << status.ToString();
  }
}

TEST(CorpusTest, Safetensors) {
  ExpectVerdicts("safetensors_fuzz",
                 [](ByteSpan bytes) { return ParseSafetensorsFile(bytes, "file").status(); });
}

TEST(CorpusTest, Index) {
  ExpectVerdicts("index_fuzz", [](ByteSpan bytes) { return ParseIndex(bytes, "file").status(); });
}

TEST(CorpusTest, Plan) {
  ExpectVerdicts("plan_fuzz", [](ByteSpan bytes) { return Plan::Parse(bytes).status(); });
}

TEST(CorpusTest, Layout) {
  ExpectVerdicts("layout_fuzz", [](ByteSpan bytes) { return Layout::Parse(bytes).status(); });
}

}  // namespace
}  // namespace segue
