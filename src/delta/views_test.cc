// SPDX-License-Identifier: Apache-2.0
//
// Deltas into engines that do not hold tensors as the checkpoint does (case C2). Method: random
// engines of one to four ranks slice, fuse, transpose, pad, block and replicate the tensors of a
// small model; every rank's memory is loaded with the base, takes deltas in every encoding, and
// must then equal memory loaded with the target, gaps and canaries included. One wrong bit anywhere
// in what changes must stop at least one rank or the sum over the ranks, with nothing written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "delta/applier.h"
#include "delta/compose.h"
#include "delta/live_map.h"
#include "delta/live_scan.h"
#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;
using ::testing::HasSubstr;

constexpr std::uint64_t kChunk = 4096;

Plan EnginePlan() {
  return Plan::Make({{"a.qkv", Dtype::kBF16, {96, 64}},
                     {"b.down", Dtype::kF32, {32, 96}},
                     {"c.fp4", Dtype::kF4, {64, 256}},
                     {"d.scales", Dtype::kF8E4M3, {200, 36}},
                     {"e.norm", Dtype::kBF16, {77}},
                     {"f.wide", Dtype::kF64, {24, 48}}},
                    kChunk)
      .value();
}

// The memory of one rank: buffers with canaries around everything that a view names.
class RankMemory {
 public:
  std::byte* Allocate(std::uint64_t size) {
    buffers_.push_back(std::make_unique<ByteVector>(size, std::byte{0xa5}));
    return buffers_.back()->data();
  }
  std::vector<ByteVector> bytes() const {
    std::vector<ByteVector> all;
    for (const auto& buffer : buffers_) all.push_back(*buffer);
    return all;
  }
  void Restore(const std::vector<ByteVector>& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) *buffers_[i] = bytes[i];
  }

  std::vector<Placement> placements;

 private:
  std::vector<std::unique_ptr<ByteVector>> buffers_;
};

// Rows and columns of a tensor in elements.
struct Matrix {
  std::uint32_t tensor;
  std::uint64_t rows, columns;
  unsigned width;
};

Matrix MatrixOf(const Plan& plan, std::uint32_t tensor) {
  const PlanTensor& spec = plan.tensors()[tensor];
  const unsigned width = DtypeWidth(spec.spec.dtype);
  const std::uint64_t rows = spec.spec.shape.size() == 2 ? spec.spec.shape[0] : 1;
  return {tensor, rows, spec.size / width / rows, width};
}

class EngineBuilder {
 public:
  EngineBuilder(const Plan& plan, std::uint32_t ranks, std::uint64_t seed)
      : plan_(plan), random_(seed), ranks_(ranks) {}

  std::vector<RankMemory> Build() {
    for (std::uint32_t t = 0; t < plan_.tensors().size(); ++t) Add(MatrixOf(plan_, t));
    return std::move(ranks_);
  }

 private:
  void Add(const Matrix& matrix) {
    if (matrix.rows == 1) return Replicate(matrix);
    switch (random_.Below(matrix.width == 1 ? 6 : 5)) {
      case 0: return Rows(matrix);
      case 1: return Columns(matrix);
      case 2: return Transposed(matrix);
      case 3: return Pairs(matrix);
      case 4: return OneRank(matrix);
      default: return Blocked(matrix);
    }
  }

  // Share `rank` of `count` things, uneven where they do not divide.
  static std::pair<std::uint64_t, std::uint64_t> Share(std::uint64_t count, std::size_t rank,
                                                       std::size_t ranks) {
    const std::uint64_t begin = count * rank / ranks;
    return {begin, count * (rank + 1) / ranks - begin};
  }

  void Place(std::size_t rank, const Matrix& matrix, std::uint64_t size, View view,
             std::uint32_t copy = 0, std::uint32_t copy_count = 1) {
    std::byte* const data = ranks_[rank].Allocate(size);
    ranks_[rank].placements.push_back(
        {matrix.tensor, data, size, std::move(view), copy, copy_count});
  }

  void Replicate(const Matrix& matrix) {
    const auto count = static_cast<std::uint32_t>(ranks_.size());
    for (std::uint32_t r = 0; r < count; ++r) {
      const std::uint64_t size = matrix.columns * matrix.width;
      ranks_[r].placements.push_back(
          {matrix.tensor, ranks_[r].Allocate(size), size, std::nullopt, r, count});
    }
  }

  void Rows(const Matrix& matrix) {
    const std::uint64_t pad = random_.Below(2) * 24;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto [begin, count] = Share(matrix.rows, r, ranks_.size());
      const std::uint64_t stride = matrix.columns * matrix.width + pad;
      Place(r, matrix, 16 + count * stride,
            RowSlice(matrix.columns, begin, count, matrix.width, 16, stride));
    }
  }

  void Columns(const Matrix& matrix) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto [begin, count] = Share(matrix.columns, r, ranks_.size());
      const std::uint64_t stride = count * matrix.width + 8;
      Place(r, matrix, matrix.rows * stride,
            ColumnSlice(matrix.rows, matrix.columns, begin, count, matrix.width, 0, stride));
    }
  }

  void Transposed(const Matrix& matrix) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto [begin, count] = Share(matrix.columns, r, ranks_.size());
      const View view =
          BoxView(std::vector<std::uint64_t>{matrix.rows, matrix.columns},
                  std::vector<std::uint64_t>{0, begin},
                  std::vector<std::uint64_t>{matrix.rows, count},
                  std::vector<std::uint64_t>{matrix.width, matrix.rows * matrix.width}, 40)
              .value();
      Place(r, matrix, 48 + matrix.rows * count * matrix.width, view);
    }
  }

  // Halves of the rows, each at every second rank: key and value heads fewer than ranks.
  void Pairs(const Matrix& matrix) {
    const std::size_t parts = std::min<std::size_t>(2, ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto [begin, count] = Share(matrix.rows, r % parts, parts);
      const std::size_t copies = (ranks_.size() - r % parts + parts - 1) / parts;
      Place(r, matrix, count * matrix.columns * matrix.width,
            RowSlice(matrix.columns, begin, count, matrix.width),
            static_cast<std::uint32_t>(r / parts), static_cast<std::uint32_t>(copies));
    }
  }

  // An expert: whole, fused with other bytes, at one rank alone.
  void OneRank(const Matrix& matrix) {
    const std::size_t rank = random_.Below(ranks_.size());
    const std::uint64_t size = matrix.rows * matrix.columns * matrix.width;
    Place(rank, matrix, size + 100, View{0, 60, {{size / matrix.width, 1, matrix.width}}});
  }

  void Blocked(const Matrix& matrix) {
    const std::size_t rank = random_.Below(ranks_.size());
    const std::uint64_t size = (matrix.rows + 127) / 128 * ((matrix.columns + 3) / 4) * 512;
    std::byte* const data = ranks_[rank].Allocate(size);
    for (View& view : BlockedScaleViews(matrix.rows, matrix.columns)) {
      ranks_[rank].placements.push_back({matrix.tensor, data, size, std::move(view)});
    }
  }

  const Plan& plan_;
  Random random_;
  std::vector<RankMemory> ranks_;
};

class ViewsTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  ViewsTest() : plan_(EnginePlan()), base_(plan_, GetParam()), target_(base_) {
    constexpr double kShares[] = {0.001, 0.02, 0.3};
    test::Mutate(plan_, target_, kShares[GetParam() % 3], GetParam() + 1);
    ranks_ = EngineBuilder(plan_, 1 + GetParam() % 4, GetParam()).Build();
    maps_.reserve(ranks_.size());
    for (const RankMemory& rank : ranks_) {
      maps_.push_back(LiveMap::Make(plan_, rank.placements).value());
    }
  }

  void Load(const Model& model) {
    for (const LiveMap& map : maps_) ASSERT_TRUE(CopyInto(plan_, model.view(), map, 2).ok());
  }
  std::vector<std::vector<ByteVector>> Memory() const {
    std::vector<std::vector<ByteVector>> all;
    for (const RankMemory& rank : ranks_) all.push_back(rank.bytes());
    return all;
  }
  RankSums Sums() const {
    RankSums sums;
    for (const LiveMap& map : maps_) sums += DigestLive(plan_, map, 2)->sums;
    return sums;
  }

  // All ranks prepare; what they find together.
  Status PreflightAll(const StagedDelta& staged) {
    appliers_.clear();
    RankSums sums;
    for (const LiveMap& map : maps_) {
      appliers_.push_back(std::make_unique<Applier>(plan_, staged, map, *device_));
      SEGUE_RETURN_IF_ERROR(appliers_.back()->Preflight());
      sums += appliers_.back()->sums();
    }
    return appliers_.front()->CheckSums(sums);
  }

  Plan plan_;
  Model base_;
  Model target_;
  std::vector<RankMemory> ranks_;
  std::vector<LiveMap> maps_;
  std::unique_ptr<Device> device_ = MakeHostDevice(2);
  std::vector<std::unique_ptr<Applier>> appliers_;
};

TEST_P(ViewsTest, DigestsOfTheRanksAddUpToTheModels) {
  Load(base_);
  const RankSums sums = Sums();
  EXPECT_EQ(sums.counted.first, DigestModel(plan_, base_.view(), 1));
  EXPECT_EQ(sums.counted.number, plan_.model_size());
  EXPECT_EQ(sums.copies, PartValues());
}

TEST_P(ViewsTest, EveryEncodingLeadsToTheTarget) {
  Load(target_);
  const auto expected = Memory();
  std::vector<std::vector<Encoding>> choices;
  for (const Encoding encoding : test::kEncodings) choices.push_back({encoding});
  choices.emplace_back(std::begin(test::kEncodings), std::end(test::kEncodings));
  for (const auto& encodings : choices) {
    SCOPED_TRACE(EncodingName(encodings.front()));
    Load(base_);
    std::vector<Digest> before;
    for (const LiveMap& map : maps_) before.push_back(DigestLive(plan_, map, 1)->all);
    const StagedDelta staged = test::Stage(plan_, test::EncodeAs(plan_, base_, target_, encodings));
    const auto loaded = Memory();
    const Status status = PreflightAll(staged);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(Memory(), loaded);
    for (const auto& applier : appliers_) ASSERT_TRUE(applier->Apply().ok());
    ASSERT_EQ(Memory(), expected);
    for (std::size_t r = 0; r < maps_.size(); ++r) {
      EXPECT_EQ(DigestLive(plan_, maps_[r], 1)->all, before[r] + appliers_[r]->difference());
    }
  }
}

// A composed delta has no `touched`: its sparse rows are proven by a scan.
TEST_P(ViewsTest, ComposedDeltas) {
  Model last = target_;
  test::Mutate(plan_, last, 0.01, GetParam() + 9);
  const StagedDelta first = test::Stage(plan_, test::Encode(plan_, base_, target_, {}).payload);
  const StagedDelta second = test::Stage(plan_, test::Encode(plan_, target_, last, {}).payload);
  ByteVector payload;
  ASSERT_TRUE(ComposeDeltas(plan_, first, second, Profile::kSparseZstd, [&](ByteSpan bytes) {
                AppendBytes(payload, bytes);
                return Status();
              }).ok());
  Load(last);
  const auto expected = Memory();
  Load(base_);
  const StagedDelta staged = test::Stage(plan_, payload);
  ASSERT_TRUE(PreflightAll(staged).ok());
  for (const auto& applier : appliers_) ASSERT_TRUE(applier->Apply().ok());
  EXPECT_EQ(Memory(), expected);
}

// One wrong bit in a changed element, at any rank, under any encoding.
TEST_P(ViewsTest, OneWrongBitIsSeenBeforeAnythingIsWritten) {
  Random random(GetParam());
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    const StagedDelta staged =
        test::Stage(plan_, test::EncodeAs(plan_, base_, target_, std::span(&encoding, 1)));
    Load(target_);
    const auto changed = Memory();
    Load(base_);
    const auto loaded = Memory();
    int tried = 0;
    for (int round = 0; round < 6; ++round) {
      const std::size_t rank = random.Below(ranks_.size());
      auto wrong = loaded[rank];
      ByteVector& buffer = wrong[random.Below(wrong.size())];
      const std::size_t which = static_cast<std::size_t>(&buffer - wrong.data());
      const std::size_t start = random.Below(buffer.size());
      std::size_t byte = start;
      // The next byte that the delta changes.
      while (buffer[byte] == changed[rank][which][byte]) {
        byte = (byte + 1) % buffer.size();
        if (byte == start) break;
      }
      if (buffer[byte] == changed[rank][which][byte]) continue;
      buffer[byte] ^= static_cast<std::byte>(1u << random.Below(8));
      ranks_[rank].Restore(wrong);
      ++tried;
      const Status status = PreflightAll(staged);
      EXPECT_EQ(status.code(), StatusCode::kVersionMismatch) << status.ToString();
      EXPECT_EQ(ranks_[rank].bytes(), wrong);
      ranks_[rank].Restore(loaded[rank]);
    }
    EXPECT_GT(tried, 0);
  }
}

// What changes between preflight and apply is reported by the apply.
TEST_P(ViewsTest, ChangedAfterThePreflight) {
  // Not raw, which writes the target over whatever is there.
  const Encoding encoding = test::kEncodings[GetParam() % (std::size(test::kEncodings) - 1)];
  const StagedDelta staged =
      test::Stage(plan_, test::EncodeAs(plan_, base_, target_, std::span(&encoding, 1)));
  Load(base_);
  ASSERT_TRUE(PreflightAll(staged).ok());
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    auto bytes = ranks_[r].bytes();
    for (ByteVector& buffer : bytes) {
      for (std::byte& byte : buffer) byte ^= std::byte{0x10};
    }
    ranks_[r].Restore(bytes);
    EXPECT_EQ(appliers_[r]->Apply().code(), StatusCode::kTainted);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ViewsTest, ::testing::Range<std::uint64_t>(0, 24));

// Case C2: the right bytes in the wrong places, of the right size.
TEST(Views, ATransposedBufferIsRefusedWithoutItsView) {
  const Plan plan = Plan::Make({{"w", Dtype::kBF16, {64, 96}}}, kChunk).value();
  const Model base(plan, 1);
  Model target = base;
  test::Mutate(plan, target, 0.01, 2);
  const StagedDelta staged = test::Stage(plan, test::Encode(plan, base, target, {}).payload);
  ByteVector live(plan.model_size());
  const auto bind = [&](std::optional<View> view) {
    return LiveMap::Make(plan, {{0, live.data(), live.size(), std::move(view)}}).value();
  };
  const LiveMap transposed = bind(TransposedView(64, 96, 2));
  ASSERT_TRUE(CopyInto(plan, base.view(), transposed, 1).ok());
  const ByteVector loaded = live;
  const auto device = MakeHostDevice(1);
  const LiveMap as_it_is = bind(std::nullopt);
  Applier wrong(plan, staged, as_it_is, *device);
  const Status status = wrong.Preflight();
  EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'w' chunk 0"));
  EXPECT_EQ(live, loaded);
  // Two rows exchanged, with the view.
  for (std::size_t i = 0; i < 128; ++i) std::swap(live[i], live[128 + i]);
  Applier exchanged(plan, staged, transposed, *device);
  EXPECT_THAT(exchanged.Preflight().message(), HasSubstr("under their views"));
  live = loaded;
  Applier right(plan, staged, transposed, *device);
  ASSERT_TRUE(right.Preflight().ok());
  ASSERT_TRUE(right.Apply().ok());
  ByteVector expected = live;
  ASSERT_TRUE(CopyInto(plan, target.view(), transposed, 1).ok());
  EXPECT_EQ(live, expected);
}

}  // namespace
}  // namespace segue
