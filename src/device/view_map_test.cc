// SPDX-License-Identifier: Apache-2.0
//
// Views against the plain definition: every element's byte computed by counting through all steps.
// The usual layouts are written out by hand, random nested ones must agree with Locate, runs and
// counts; views that leave the tensor or the buffer, or name something twice, are refused.
#include "device/view_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/random.h"
#include "segue/view.h"

namespace segue {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Places = std::map<std::uint64_t, std::uint64_t>;

// Element to byte, by the definition.
Places PlacesOf(const View& view) {
  Places places = {{view.source_offset, view.target_offset}};
  for (const ViewAxis& axis : view.axes) {
    Places more;
    for (const auto& [element, byte] : places) {
      for (std::uint64_t i = 0; i < axis.count; ++i) {
        more[element + i * axis.source_stride] = byte + i * axis.target_stride;
      }
    }
    places = std::move(more);
  }
  return places;
}

Places Located(const ViewMap& map, std::uint64_t element_count) {
  Places places;
  for (std::uint64_t i = 0; i < element_count; ++i) {
    if (const auto byte = map.Locate(i)) places[i] = *byte;
  }
  return places;
}

Places OfRuns(const ViewMap& map, std::uint64_t begin, std::uint64_t end) {
  Places places;
  std::uint64_t next = begin;
  map.ForEachRun(begin, end, [&](std::uint64_t element, std::uint64_t target, std::uint64_t count) {
    EXPECT_GE(element, next);
    EXPECT_GT(count, 0u);
    next = element + count;
    for (std::uint64_t i = 0; i < count; ++i) {
      places[element + i] = target + i * map.run_stride();
    }
  });
  EXPECT_LE(next, std::max(begin, end));
  return places;
}

void ExpectIs(const View& view, std::uint64_t element_count, unsigned width,
              std::uint64_t target_size) {
  const auto map = ViewMap::Make(view, element_count, width, target_size);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  const Places expected = PlacesOf(view);
  EXPECT_EQ(Located(map.value(), element_count), expected);
  EXPECT_EQ(map->element_count(), expected.size());
  for (std::uint64_t begin = 0; begin <= element_count; begin += 1 + element_count / 13) {
    for (std::uint64_t end = begin; end <= element_count; end += 1 + element_count / 7) {
      const Places part(expected.lower_bound(begin), expected.lower_bound(end));
      ASSERT_EQ(OfRuns(map.value(), begin, end), part) << begin << " to " << end;
      ASSERT_EQ(map->CountIn(begin, end), part.size());
      const auto contiguous = map->Contiguous(begin, end);
      bool expect = begin < end && part.size() == end - begin;
      for (const auto& [element, byte] : part) {
        expect = expect && byte == part.begin()->second + (element - begin) * width;
      }
      // It may miss a run that two axes make by chance, but never claims one.
      if (contiguous) {
        EXPECT_TRUE(expect);
        EXPECT_EQ(*contiguous, part.begin()->second);
      }
    }
  }
}

TEST(ViewMap, WholeTensorIsOneRun) {
  const View view = BoxView(std::vector<std::uint64_t>{4, 6}, std::vector<std::uint64_t>{0, 0},
                            std::vector<std::uint64_t>{4, 6}, std::vector<std::uint64_t>{12, 2})
                        .value();
  ExpectIs(view, 24, 2, 48);
  const ViewMap map = ViewMap::Make(view, 24, 2, 48).value();
  EXPECT_EQ(map.Contiguous(5, 20), 10u);
  EXPECT_EQ(map, ViewMap::Make({0, 0, {{24, 1, 2}}}, 24, 2, 48).value());
}

TEST(ViewMap, RowSlice) {
  // Rows 2 and 3 of 5 x 3, behind 100 bytes.
  const View view = RowSlice(3, 2, 2, 2, 100);
  ExpectIs(view, 15, 2, 112);
  EXPECT_EQ(Located(ViewMap::Make(view, 15, 2, 112).value(), 15),
            (Places{{6, 100}, {7, 102}, {8, 104}, {9, 106}, {10, 108}, {11, 110}}));
  EXPECT_EQ(ViewMap::Make(view, 15, 2, 112)->Contiguous(6, 12), 100u);
  EXPECT_FALSE(ViewMap::Make(view, 15, 2, 112)->Contiguous(5, 12));
  ExpectIs(RowSlice(3, 2, 2, 2, 100, 16), 15, 2, 122);  // Padded rows.
}

TEST(ViewMap, ColumnSlice) {
  const View view = ColumnSlice(3, 6, 2, 2, 4);
  ExpectIs(view, 18, 4, 24);
  EXPECT_EQ(Located(ViewMap::Make(view, 18, 4, 24).value(), 18),
            (Places{{2, 0}, {3, 4}, {8, 8}, {9, 12}, {14, 16}, {15, 20}}));
  ExpectIs(ColumnSlice(3, 6, 5, 1, 4), 18, 4, 12);  // One column: no axis of stride 1 is left.
}

TEST(ViewMap, Transposed) {
  const View view = TransposedView(2, 3, 1);
  ExpectIs(view, 6, 1, 6);
  EXPECT_EQ(Located(ViewMap::Make(view, 6, 1, 6).value(), 6),
            (Places{{0, 0}, {1, 2}, {2, 4}, {3, 1}, {4, 3}, {5, 5}}));
  ExpectIs(TransposedView(2, 3, 1, 7, 16), 6, 1, 41);
}

// Row r, column c of the scales lie at the place that the hardware's layout gives.
TEST(ViewMap, BlockedScales) {
  for (const std::uint64_t rows : {1, 31, 32, 96, 128, 200, 256, 391}) {
    for (const std::uint64_t columns : {1, 3, 4, 7, 8}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const std::uint64_t tiles_across = (columns + 3) / 4;
      const std::uint64_t size = (rows + 127) / 128 * tiles_across * 512;
      Places found;
      for (const View& view : BlockedScaleViews(rows, columns, 64)) {
        ExpectIs(view, rows * columns, 1, 64 + size);
        const Places part = PlacesOf(view);
        const std::size_t before = found.size();
        found.insert(part.begin(), part.end());
        EXPECT_EQ(found.size(), before + part.size()) << "two views hold the same scale";
      }
      ASSERT_EQ(found.size(), rows * columns);
      for (std::uint64_t r = 0; r < rows; ++r) {
        for (std::uint64_t c = 0; c < columns; ++c) {
          const std::uint64_t tile = (r / 128) * tiles_across + c / 4;
          ASSERT_EQ(found[r * columns + c],
                    64 + tile * 512 + (r % 32) * 16 + (r % 128 / 32) * 4 + c % 4);
        }
      }
    }
  }
}

// Boxes of random shapes, axes of the buffer in random order, with gaps.
TEST(ViewMap, RandomBoxesAgreeWithTheDefinition) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t rank = 1 + random.Below(4);
    const unsigned width = 1u << random.Below(4);
    std::vector<std::uint64_t> shape(rank), begin(rank), count(rank), strides(rank), order(rank);
    std::uint64_t elements = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      shape[k] = 1 + random.Below(7);
      begin[k] = random.Below(shape[k]);
      count[k] = 1 + random.Below(shape[k] - begin[k]);
      elements *= shape[k];
      order[k] = k;
    }
    for (std::size_t k = rank; k-- > 1;) std::swap(order[k], order[random.Below(k + 1)]);
    std::uint64_t reach = width;
    for (const std::size_t k : order) {
      strides[k] = reach + random.Below(3);
      reach += (count[k] - 1) * strides[k];
    }
    const std::uint64_t offset = random.Below(20);
    const View view = BoxView(shape, begin, count, strides, offset).value();
    ExpectIs(view, elements, width, offset + reach);
    EXPECT_FALSE(ViewMap::Make(view, elements, width, offset + reach - 1).ok());
  }
}

TEST(ViewMap, Refusals) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  const auto refused = [](const View& view) {
    const auto map = ViewMap::Make(view, 100, 2, 200);
    EXPECT_EQ(map.status().code(), StatusCode::kInvalidArgument);
    return map.status().message();
  };
  EXPECT_THAT(refused({0, 0, {{101, 1, 2}}}), HasSubstr("101 steps"));
  EXPECT_THAT(refused({1, 0, {{100, 1, 2}}}), HasSubstr("leaves its tensor of 100"));
  EXPECT_THAT(refused({100, 0, {}}), HasSubstr("leaves its tensor"));
  EXPECT_THAT(refused({0, 2, {{100, 1, 2}}}), HasSubstr("leaves its buffer of 200"));
  EXPECT_THAT(refused({0, kHuge, {{2, 1, 2}}}), HasSubstr("leaves its buffer"));
  EXPECT_THAT(refused({kHuge, 0, {{2, 1, 2}}}), HasSubstr("leaves its tensor"));
  EXPECT_THAT(refused({0, 0, {{0, 1, 2}}}), HasSubstr("0 steps"));
  EXPECT_THAT(refused({0, 0, {{2, 0, 2}}}), HasSubstr("steps of 0"));
  EXPECT_THAT(refused({0, 0, {{3, kHuge / 2, 2}}}), HasSubstr("steps of"));
  EXPECT_THAT(refused({0, 0, {{3, 1, kHuge / 2}}}), HasSubstr("steps of"));
  EXPECT_THAT(refused({0, 0, {{2, kHuge / 4, 2}, {2, 1, 8}}}), HasSubstr("leaves its tensor"));
  EXPECT_THAT(refused({0, 0, {{5, 2, 20}, {3, 1, 2}}}), HasSubstr("names an element twice"));
  EXPECT_THAT(refused({0, 0, {{5, 3, 4}, {3, 1, 2}}}), HasSubstr("names a byte twice"));
  EXPECT_THAT(refused({0, 0, {{5, 1, 1}}}), HasSubstr("names a byte twice"));
  EXPECT_THAT(refused({0, 0, std::vector<ViewAxis>(17, {1, 1, 2})}), HasSubstr("17 axes"));
}

TEST(BoxView, Refusals) {
  const std::vector<std::uint64_t> shape = {4, 6};
  const auto refused = [&](std::vector<std::uint64_t> begin, std::vector<std::uint64_t> count) {
    return BoxView(shape, begin, count, shape).status().message();
  };
  EXPECT_THAT(refused({0, 3}, {4, 4}), HasSubstr("dimension 1 of a view takes 4 from 3 on"));
  EXPECT_THAT(refused({4, 0}, {1, 1}), HasSubstr("dimension 0"));
  EXPECT_THAT(refused({0, 0}, {0, 1}), HasSubstr("dimension 0"));
  EXPECT_THAT(refused({0}, {1}), HasSubstr("as many"));
  const std::vector<std::uint64_t> vast = {1ull << 40, 1ull << 40};
  const std::vector<std::uint64_t> zeros = {0, 0};
  EXPECT_THAT(BoxView(vast, zeros, vast, shape).status().message(), HasSubstr("counted"));
}

}  // namespace
}  // namespace segue
