// SPDX-License-Identifier: Apache-2.0
//
// Payload table and trailer: rows survive the columns, and every rule of docs/format.md, section 5,
// has a table that breaks it alone. Method: one valid table with every encoding; each case edits
// one field and must be refused with the code that tells a caller what to do.
#include "delta/payload_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "codec/block_codec.h"
#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;
using ::testing::HasSubstr;

constexpr std::uint64_t kChunk = 4096;

// Chunks 0 to 5 of BF16 in encodings 1 to 6, chunk 6 unchanged, chunk 7 (100 elements) sparse.
class PayloadTableTest : public ::testing::Test {
 protected:
  PayloadTableTest()
      : plan_(test::OneTensorPlan(Dtype::kBF16, 7 * kChunk + 200, kChunk)), base_(plan_, 1) {
    Model target = base_;
    test::Mutate(plan_, target, 0.1, 2, 0x07);
    std::copy_n(base_.Tensor(0) + 6 * kChunk, kChunk, target.Tensor(0) + 6 * kChunk);
    target.Tensor(0)[7 * kChunk] ^= std::byte{0x10};
    std::vector<Encoding> encodings(std::begin(test::kEncodings), std::end(test::kEncodings));
    encodings.insert(encodings.end(), {Encoding::kSparse, Encoding::kSparse});
    payload_ = test::EncodeAs(plan_, base_, target, encodings);
    table_ = ReadPayloadTable(payload_, plan_).value();
    for (const Frame& frame : table_.frames) frames_size_ += frame.outer_size;
  }

  Status Parse(const PayloadTable& table) const {
    const ByteVector inner = table.Serialize();
    return PayloadTable::Parse(inner, table.groups.size(), table.frames.size(), table.rows.size(),
                               frames_size_, plan_)
        .status();
  }

  void ExpectRefused(const char* what, const std::function<void(PayloadTable&)>& edit,
                     StatusCode code = StatusCode::kCorruption) const {
    PayloadTable table = table_;
    edit(table);
    const Status status = Parse(table);
    EXPECT_EQ(status.code(), code) << what << ": " << status.ToString();
  }

  Plan plan_;
  Model base_;
  ByteVector payload_;
  PayloadTable table_;
  std::uint64_t frames_size_ = 0;
};

constexpr std::size_t kSparseRow = 0;
constexpr std::size_t kPlanesRow = 1;
constexpr std::size_t kSnappyRow = 2;
constexpr std::size_t kRawRow = 5;

TEST_F(PayloadTableTest, TheFixtureHasEveryEncoding) {
  ASSERT_EQ(table_.rows.size(), 7u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(table_.rows[i].encoding, test::kEncodings[i]);
  EXPECT_EQ(table_.rows[6].chunk, 7u);
}

TEST_F(PayloadTableTest, SerializesAndParsesToTheSame) {
  const ByteVector inner = table_.Serialize();
  EXPECT_EQ(inner.size(),
            6 * table_.groups.size() + 9 * table_.frames.size() + 67 * table_.rows.size());
  const auto parsed = PayloadTable::Parse(inner, table_.groups.size(), table_.frames.size(),
                                          table_.rows.size(), frames_size_, plan_);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->rows, table_.rows);
  EXPECT_EQ(parsed->Serialize(), inner);
}

TEST_F(PayloadTableTest, RefusesAnotherSize) {
  ByteVector inner = table_.Serialize();
  inner.push_back(std::byte{0});
  EXPECT_EQ(PayloadTable::Parse(inner, table_.groups.size(), table_.frames.size(),
                                table_.rows.size(), frames_size_, plan_)
                .status()
                .code(),
            StatusCode::kCorruption);
}

TEST_F(PayloadTableTest, RefusesLiesAboutRows) {
  const auto edit_row = [&](const char* what, std::size_t row, std::function<void(ChunkRow&)> edit,
                            StatusCode code = StatusCode::kCorruption) {
    ExpectRefused(
        what, [&](PayloadTable& table) { edit(table.rows[row]); }, code);
  };
  for (const auto code : {std::uint8_t{0}, std::uint8_t{7}, std::uint8_t{255}}) {
    edit_row(
        "encoding", kRawRow, [&](ChunkRow& row) { row.encoding = Encoding{code}; },
        StatusCode::kUnsupported);
  }
  edit_row("chunk", 6, [](ChunkRow& row) { row.chunk = 8; });
  edit_row("chunk far away", 6, [](ChunkRow& row) { row.chunk = 0xffffffff; });
  for (std::size_t row = 0; row < table_.rows.size(); ++row) {
    edit_row("no change", row, [](ChunkRow& r) { r.change_count = 0; });
    edit_row("more changes than elements", row, [](ChunkRow& r) { r.change_count = 2049; });
    edit_row("changes of 2^32-1", row, [](ChunkRow& r) { r.change_count = 0xffffffff; });
    edit_row("plane beyond width", row, [](ChunkRow& r) { r.plane_mask |= 4; });
    edit_row("constant beyond width", row, [](ChunkRow& r) { r.constants |= 1ull << 16; });
    edit_row("constant in the top byte", row, [](ChunkRow& r) { r.constants |= 1ull << 63; });
    edit_row("low_bits 25", row, [](ChunkRow& r) { r.low_bits = 25; });
    edit_row("low_bits 255", row, [](ChunkRow& r) { r.low_bits = 255; });
    edit_row("dense_size more", row, [](ChunkRow& r) { r.dense_size += 1; });
    edit_row("dense_size huge", row, [](ChunkRow& r) { r.dense_size = 0xffffffff; });
    edit_row("inner_size more", row, [](ChunkRow& r) { r.inner_size += 1; });
    edit_row("inner_size huge", row, [](ChunkRow& r) { r.inner_size = 0xffffffff; });
    if (table_.rows[row].encoding == Encoding::kSparse) continue;
    edit_row("low_bits of another encoding", row, [](ChunkRow& r) { r.low_bits = 1; });
    edit_row("touched of another encoding", row, [](ChunkRow& r) { r.touched = 1; });
  }
  for (const std::size_t row : {kSnappyRow, kRawRow}) {
    edit_row("dense_size 0", row, [](ChunkRow& r) { r.dense_size = 0; });
    edit_row("planes of a dense row", row, [](ChunkRow& r) { r.plane_mask = 1; });
    edit_row("constants of a dense row", row, [](ChunkRow& r) { r.constants = 1; });
  }
  for (const std::size_t row : {kSparseRow, kPlanesRow}) {
    ASSERT_EQ(table_.rows[row].plane_mask, 1);  // Plane 1 of the fixture is constant 0.
    edit_row("constant of a stored plane", row, [](ChunkRow& r) { r.constants = 1; });
    edit_row("fewer planes than its frames hold", row, [](ChunkRow& r) { r.plane_mask = 0; });
    edit_row("more planes than its frames hold", row, [](ChunkRow& r) { r.plane_mask = 3; });
  }
  edit_row("every mask 0", kSparseRow, [](ChunkRow& r) { r.plane_mask = 0, r.constants = 0; });
  edit_row("another count", kSparseRow, [](ChunkRow& r) { r.change_count += 1; });
  edit_row("raw that is short", kRawRow, [](ChunkRow& r) { r.dense_size -= 1; });
}

TEST_F(PayloadTableTest, RefusesLiesAboutGroupsAndFrames) {
  ExpectRefused("no rows in a group", [](PayloadTable& t) { t.groups[0].row_count = 0; });
  ExpectRefused("a row left over", [](PayloadTable& t) { t.groups[0].row_count -= 1; });
  ExpectRefused("a row too many", [](PayloadTable& t) { t.groups[0].row_count += 1; });
  ExpectRefused("rows wrap", [](PayloadTable& t) { t.groups[0].row_count = 0xffffffff; });
  for (unsigned s = 0; s < 16; ++s) {
    ExpectRefused("stream mask", [&](PayloadTable& t) {
      t.groups[0].stream_mask = static_cast<std::uint16_t>(t.groups[0].stream_mask ^ 1u << s);
    });
  }
  ExpectRefused("a group without rows behind", [](PayloadTable& t) { t.groups.push_back({0, 0}); });
  ExpectRefused("too few frames", [](PayloadTable& t) { t.frames.pop_back(); });
  ExpectRefused("too many frames", [](PayloadTable& t) { t.frames.push_back({}); });
  for (std::size_t i = 0; i < table_.frames.size(); ++i) {
    ExpectRefused("inner_size", [&](PayloadTable& t) { t.frames[i].inner_size += 1; });
    ExpectRefused("outer_size", [&](PayloadTable& t) { t.frames[i].outer_size += 1; });
    ExpectRefused(
        "inner_size over the limit",
        [&](PayloadTable& t) { t.frames[i].inner_size = (1u << 26) + 1; },
        StatusCode::kResourceExhausted);
    ExpectRefused(
        "outer codec", [&](PayloadTable& t) { t.frames[i].outer = Outer{2}; },
        StatusCode::kUnsupported);
  }
  ExpectRefused("a stored frame of two sizes", [](PayloadTable& t) {
    const auto stored = std::find_if(t.frames.begin(), t.frames.end(), [](const Frame& frame) {
      return frame.outer == Outer::kStored;
    });
    ASSERT_NE(stored, t.frames.end());
    stored->outer_size -= 1;
    stored[stored == t.frames.begin() ? 1 : -1].outer_size += 1;  // The sum stays.
  });
}

TEST_F(PayloadTableTest, RefusesLiesOfTheTrailer) {
  const ByteSpan bytes = ByteSpan(payload_).last(kTrailerSize);
  const Trailer good = Trailer::Parse(bytes, payload_.size(), plan_).value();
  EXPECT_EQ(good.Serialize(), ByteVector(bytes.begin(), bytes.end()));
  const auto refused = [&](std::uint64_t Trailer::*field, std::uint64_t value) {
    Trailer trailer = good;
    trailer.*field = value;
    const Status status = Trailer::Parse(trailer.Serialize(), payload_.size(), plan_).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << value;
  };
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1} << 32, UINT64_MAX, UINT64_MAX - 63, std::uint64_t{15}}) {
    refused(&Trailer::table_offset, value);
    refused(&Trailer::table_size, value);
    refused(&Trailer::table_inner_size, value);
    refused(&Trailer::group_count, value);
    refused(&Trailer::frame_count, value);
    refused(&Trailer::row_count, value);
  }
  refused(&Trailer::table_offset, good.table_offset + 1);
  refused(&Trailer::row_count, plan_.chunk_count() + 1);
  for (const std::size_t reserved_or_magic : {48, 55, 56, 63}) {
    ByteVector edited(bytes.begin(), bytes.end());
    edited[reserved_or_magic] ^= std::byte{1};
    EXPECT_EQ(Trailer::Parse(edited, payload_.size(), plan_).status().code(),
              StatusCode::kCorruption);
  }
}

TEST_F(PayloadTableTest, RefusesLiesOfThePrelude) {
  for (std::size_t i = 0; i < kPreludeSize; ++i) {
    ByteVector edited = payload_;
    edited[i] ^= std::byte{2};
    const Status status = ReadPayloadTable(edited, plan_).status();
    const bool version = i >= 8 && i < 12;
    EXPECT_EQ(status.code(), version ? StatusCode::kUnsupported : StatusCode::kCorruption) << i;
  }
}

TEST_F(PayloadTableTest, RefusesEveryTruncation) {
  for (std::size_t size = 0; size < payload_.size(); ++size) {
    EXPECT_EQ(ReadPayloadTable(ByteSpan(payload_).first(size), plan_).status().code(),
              StatusCode::kCorruption)
        << size;
  }
}

// A table frame that is wrong in itself: no checksum, two frames, another size.
TEST_F(PayloadTableTest, RefusesOtherTableFrames) {
  const Trailer good =
      Trailer::Parse(ByteSpan(payload_).last(kTrailerSize), payload_.size(), plan_).value();
  const auto with_table = [&](ByteSpan frame) {
    ByteVector payload(payload_.begin(),
                       payload_.begin() + static_cast<std::ptrdiff_t>(good.table_offset));
    AppendBytes(payload, frame);
    Trailer trailer = good;
    trailer.table_size = frame.size();
    AppendBytes(payload, trailer.Serialize());
    return ReadPayloadTable(payload, plan_).status();
  };
  const ByteSpan frame = ByteSpan(payload_).subspan(good.table_offset, good.table_size);
  EXPECT_TRUE(with_table(frame).ok());
  ByteVector twice(frame.begin(), frame.end());
  AppendBytes(twice, frame);
  EXPECT_EQ(with_table(twice).code(), StatusCode::kCorruption);
  EXPECT_EQ(with_table({}).code(), StatusCode::kCorruption);
  ByteVector shorter = table_.Serialize();
  shorter.pop_back();
  ByteVector packed(ZstdBound(shorter.size()));
  packed.resize(ZstdCompressor().Compress(shorter, packed).value());
  const Status status = with_table(packed);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("payload table"));
}

}  // namespace
}  // namespace segue
