// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a payload against a small fixed plan: staging refuses it, or the preflight does with
// nothing written, or applying gives exactly what the rows' digests state. First byte 0: the rest
// is a payload as it is. Otherwise the rest is a table and frames, put into an object with a valid
// table frame and trailer, since no mutation gets past Zstd's checksum.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "codec/block_codec.h"
#include "delta/applier.h"
#include "delta/changes.h"
#include "delta/encoder.h"
#include "delta/payload_table.h"
#include "delta/staged_delta.h"

namespace segue {
namespace {

// Seven chunks: full ones, short ones, widths 1, 2, 4 and 8.
const Plan& FixedPlan() {
  static const Plan plan = Plan::Make({{"a", Dtype::kBF16, {4500}},
                                       {"b", Dtype::kU8, {100}},
                                       {"c", Dtype::kF32, {1025}},
                                       {"d", Dtype::kI64, {3}}},
                                      4096)
                               .value();
  return plan;
}

// The base: bytes by a formula, one exact block a tensor so that nothing outside can be touched.
std::vector<ByteVector> BaseTensors() {
  std::vector<ByteVector> tensors;
  for (const PlanTensor& tensor : FixedPlan().tensors()) {
    ByteVector& bytes = tensors.emplace_back(tensor.size);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  }
  return tensors;
}

MutableModelView ViewOf(std::vector<ByteVector>& tensors) {
  std::vector<std::byte*> pointers;
  pointers.reserve(tensors.size());
  for (ByteVector& tensor : tensors) pointers.push_back(tensor.data());
  return MutableModelView(std::move(pointers));
}

// `u8 groups, u8 frames, u8 rows`, the table's columns, then the frames.
ByteVector WrapParts(ByteSpan input) {
  Trailer trailer;
  std::uint64_t* counts[] = {&trailer.group_count, &trailer.frame_count, &trailer.row_count};
  for (std::uint64_t* count : counts) {
    if (input.empty()) return {};
    *count = std::to_integer<std::uint64_t>(input.front());
    input = input.subspan(1);
  }
  trailer.table_inner_size =
      6 * trailer.group_count + 9 * trailer.frame_count + 67 * trailer.row_count;
  if (trailer.table_inner_size > input.size()) return {};
  const ByteSpan inner = input.first(trailer.table_inner_size);
  ByteVector payload;
  AppendBytes(payload, AsBytes(kPayloadMagic));
  AppendLittle<std::uint64_t>(payload, 1);  // Format version and reserved bits.
  AppendBytes(payload, input.subspan(trailer.table_inner_size));
  ByteVector packed(ZstdBound(inner.size()));
  packed.resize(ZstdCompressor().Compress(inner, packed).value());
  trailer.table_offset = payload.size();
  trailer.table_size = packed.size();
  AppendBytes(payload, packed);
  AppendBytes(payload, trailer.Serialize());
  return payload;
}

// The journal of a row that passed the preflight brings its base back.
void CheckJournal(std::span<const ChunkWork> work, std::vector<ByteVector>& live,
                  Applier& applier) {
  // Element by element: the applier changes `live` behind its back.
  const std::vector<ByteVector> base(live.begin(), live.end());
  ChangeReader reader(FixedPlan().chunk_size());
  std::vector<ByteVector> journal(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    SEGUE_CHECK(reader.CollectValues(work[i], journal[i]).ok());
  }
  SEGUE_CHECK(applier.Apply().ok());
  for (std::size_t i = 0; i < work.size(); ++i) {
    SEGUE_CHECK(reader.RestoreValues(work[i], journal[i]).ok());
  }
  SEGUE_CHECK(live == base);
}

void CheckPayload(ByteSpan payload) {
  const Plan& plan = FixedPlan();
  const auto staged = StagedDelta::Stage(plan, std::span(&payload, 1), 1);
  if (!staged.ok()) {
    SEGUE_CHECK(!staged.status().message().empty());
    return;
  }
  std::vector<ByteVector> live = BaseTensors();
  const std::vector<ByteVector> base = live;
  const MutableModelView view = ViewOf(live);
  static const auto device = MakeHostDevice(1);
  Applier applier(plan, *staged.operator->(), view, *device);
  const Status preflight = applier.Preflight();
  SEGUE_CHECK(live == base);
  if (!preflight.ok()) return;
  CheckJournal(applier.work(), live, applier);
  const Digest before = DigestModel(plan, ReadOnly(view), 1);
  SEGUE_CHECK(applier.Preflight().ok() && applier.Apply().ok());
  SEGUE_CHECK(DigestModel(plan, ReadOnly(view), 1) == before + staged->difference());
  for (const ChunkRow& row : staged->rows()) {
    const ChunkPlace place = plan.Chunk(row.chunk);
    const Digest after =
        DigestBytes(place.tensor, place.offset, ByteSpan(view.Chunk(place), place.size));
    // A recorded `touched` proves the difference; otherwise `after` itself is proven.
    SEGUE_CHECK(row.touched != 0 || after == row.after);
  }
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 0) {
    segue::CheckPayload(bytes);
  } else {
    segue::CheckPayload(segue::WrapParts(bytes));
  }
  return 0;
}
