// SPDX-License-Identifier: Apache-2.0
//
// Golden updates: tests/golden was written by the plain Python reference from docs/format.md alone.
// Goal: both read the same things and refuse the same things. Method: every folder of valid/ must
// turn base/ into target/ byte for byte; every folder of invalid/ holds one lie and must be refused
// with the stated code, and with the live bytes as they were. Lies of the layout are held against
// the layout's own reader (src/checkpoint).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/layout.h"
#include "delta/manifest.h"
#include "delta/testing.h"

namespace segue {
namespace {

namespace fs = std::filesystem;
using test::Model;

// Lies that docs/format.md asks no reader to find, and this one does not: it counts no elements of
// dense chunks, and where `touched` is recorded it reads the changed elements alone, so that
// `before` and `after` count by their difference. The bytes must be right all the same.
constexpr const char* kHarmlessHere[] = {"row-change-count-of-planes", "row-change-count-of-raw",
                                         "digest-before-and-after"};

ByteVector ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const ByteSpan bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

// One update as it is stored, and the live bytes that it is brought into.
class Update {
 public:
  explicit Update(fs::path folder) : folder_(std::move(folder)) {}

  // All that a reader does, in the order that makes the best messages.
  Status Run() {
    SEGUE_ASSIGN_OR_RETURN(plan_, Plan::Parse(ReadFile(folder_ / "plan.bin")));
    SEGUE_RETURN_IF_ERROR(ReadRecord());
    SEGUE_ASSIGN_OR_RETURN(const Layout layout, Layout::Parse(ReadFile(folder_ / "layout.bin")));
    if (manifest_->identity.plan != plan_->digest()) return Corruption("another plan");
    if (manifest_->identity.target_layout != layout.digest()) return Corruption("another layout");
    SEGUE_RETURN_IF_ERROR(LoadBase());
    SEGUE_RETURN_IF_ERROR(Stage());
    SEGUE_RETURN_IF_ERROR(CheckSums());
    if (DigestModel(*plan_, base_->view(), 1) != manifest_->identity.base_digest) {
      return VersionMismatch("another base");
    }
    const auto device = MakeHostDevice(1);
    Applier applier(*plan_, *staged_, live_->live(), *device);
    SEGUE_RETURN_IF_ERROR(applier.Preflight());
    EXPECT_TRUE(*live_ == *base_);
    return applier.Apply();
  }

  bool LiveIsBase() const { return !live_ || *live_ == *base_; }

  void ExpectLiveIsTarget() {
    const Checkpoint target = Checkpoint::Open(folder_ / "target").value();
    ASSERT_EQ(target.tensors().size(), plan_->tensors().size());
    for (std::size_t t = 0; t < target.tensors().size(); ++t) {
      const ByteSpan bytes = target.TensorBytes(t);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), live_->Tensor(t)))
          << target.tensors()[t].spec.name;
    }
    ExpectLiveHasTargetDigest();
  }

  void ExpectLiveHasTargetDigest() const {
    EXPECT_EQ(DigestModel(*plan_, live_->view(), 1), manifest_->identity.target_digest);
  }

 private:
  // An anchor's delta is applied as a version's is.
  Status ReadRecord() {
    if (!fs::exists(folder_ / "anchor.json")) {
      SEGUE_ASSIGN_OR_RETURN(manifest_,
                             Manifest::Parse(ReadFile(folder_ / "manifest.json"), "manifest.json"));
      return {};
    }
    SEGUE_ASSIGN_OR_RETURN(AnchorRecord record,
                           AnchorRecord::Parse(ReadFile(folder_ / "anchor.json"), "anchor.json"));
    manifest_ = std::move(record.manifest);
    return {};
  }

  Status LoadBase() {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint base, Checkpoint::Open(folder_ / "base"));
    SEGUE_ASSIGN_OR_RETURN(const Plan found, Plan::FromCheckpoint(base, plan_->chunk_size()));
    SEGUE_RETURN_IF_ERROR(ComparePlans(*plan_, found, "plan", "base"));
    base_.emplace(*plan_);
    for (std::size_t t = 0; t < base.tensors().size(); ++t) {
      const ByteSpan bytes = base.TensorBytes(t);
      std::copy(bytes.begin(), bytes.end(), base_->Tensor(t));
    }
    live_ = base_;
    return {};
  }

  Status Stage() {
    std::vector<ByteVector> payloads;
    for (const PayloadEntry& entry : manifest_->payloads) {
      char name[32];
      std::snprintf(name, sizeof(name), "payload-%05u.bin", entry.owner);
      payloads.push_back(ReadFile(folder_ / name));
      SEGUE_RETURN_IF_ERROR(StagedDelta::VerifyPayload(entry, payloads.back()));
      SEGUE_ASSIGN_OR_RETURN(const PayloadTable table, ReadPayloadTable(payloads.back(), *plan_));
      if (table.rows.size() != entry.rows) return Corruption("another count of rows");
    }
    const std::vector<ByteSpan> spans(payloads.begin(), payloads.end());
    SEGUE_ASSIGN_OR_RETURN(staged_, StagedDelta::Stage(*plan_, spans, 2));
    return {};
  }

  // What the manifest says of all payloads together.
  Status CheckSums() {
    const DeltaIdentity& identity = manifest_->identity;
    if (staged_->rows().size() != identity.changed_chunks ||
        staged_->changed_elements() != identity.changed_elements) {
      return Corruption("other counts");
    }
    if (manifest_->model_bytes != plan_->model_size()) return Corruption("another size");
    if (staged_->difference() != identity.target_digest - identity.base_digest) {
      return Corruption("the payloads do not lead from base digest to target digest");
    }
    return {};
  }

  fs::path folder_;
  std::optional<Plan> plan_;
  std::optional<Manifest> manifest_;
  std::optional<StagedDelta> staged_;
  std::optional<Model> base_;
  std::optional<Model> live_;
};

std::vector<std::string> Folders(const char* kind) {
  std::vector<std::string> names;
  for (const auto& entry :
       fs::directory_iterator(fs::path(SEGUE_SOURCE_DIR) / "tests/golden" / kind)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(GoldenTest, EveryValidUpdateGivesItsTarget) {
  const auto names = Folders("valid");
  ASSERT_GE(names.size(), 33u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Update update(fs::path(SEGUE_SOURCE_DIR) / "tests/golden/valid" / name);
    const Status status = update.Run();
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (status.ok()) update.ExpectLiveIsTarget();
  }
}

// Whether `code` stands between quotes in the expectation's text, as "code" or in "also".
bool Expects(const std::string& expectation, StatusCode code) {
  return expectation.find('"' + std::string(StatusCodeName(code)) + '"') != std::string::npos;
}

TEST(GoldenTest, EveryInvalidUpdateIsRefusedWithItsCode) {
  const auto names = Folders("invalid");
  ASSERT_GE(names.size(), 200u);
  for (const std::string& name : names) {
    if (name.starts_with("layout-")) continue;
    SCOPED_TRACE(name);
    const fs::path folder = fs::path(SEGUE_SOURCE_DIR) / "tests/golden/invalid" / name;
    const ByteVector expectation = ReadFile(folder / "expected.json");
    Update update(folder);
    const Status status = update.Run();
    if (status.ok() && std::count(std::begin(kHarmlessHere), std::end(kHarmlessHere), name) != 0) {
      update.ExpectLiveHasTargetDigest();
      continue;
    }
    EXPECT_TRUE(Expects(std::string(AsText(expectation)), status.code()))
        << status.ToString() << "\n"
        << AsText(expectation);
    EXPECT_TRUE(update.LiveIsBase());
  }
}

TEST(GoldenTest, InvalidLayoutFramesAreRefused) {
  for (const char* name : {"layout-magic", "layout-version", "layout-reserved", "layout-garbage",
                           "layout-inner-size", "layout-inner-size-huge", "layout-window",
                           "layout-trailing-bytes", "layout-inner-trailing-bytes"}) {
    SCOPED_TRACE(name);
    const fs::path folder = fs::path(SEGUE_SOURCE_DIR) / "tests/golden/invalid" / name;
    const ByteVector expectation = ReadFile(folder / "expected.json");
    const Status status = Layout::Parse(ReadFile(folder / "layout.bin")).status();
    EXPECT_TRUE(Expects(std::string(AsText(expectation)), status.code())) << status.ToString();
  }
}

}  // namespace
}  // namespace segue
