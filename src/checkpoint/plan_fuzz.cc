// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: a plan object. Asserts that the bytes are canonical (parse, make again, equal
// bytes), and that every chunk number leads into its tensor, in order and without gaps.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "checkpoint/plan.h"

namespace segue {
namespace {

void CheckCanonical(const Plan& plan, ByteSpan object) {
  std::vector<TensorSpec> specs;
  for (const PlanTensor& tensor : plan.tensors()) specs.push_back(tensor.spec);
  const Plan again = Plan::Make(specs, plan.chunk_size()).value();
  SEGUE_CHECK(AsText(again.object()) == AsText(object));
  SEGUE_CHECK(again.digest() == plan.digest());
  SEGUE_CHECK(ComparePlans(plan, again, "plan", "again").ok());
}

// The first and the last chunks; a hostile plan may have 2^32.
void CheckChunks(const Plan& plan) {
  constexpr std::uint64_t kCheckedMax = 1000;
  const std::uint64_t count = plan.chunk_count();
  for (std::uint64_t chunk = 0; chunk < count; ++chunk) {
    if (chunk == kCheckedMax && count > 2 * kCheckedMax) chunk = count - kCheckedMax;
    const ChunkPlace place = plan.Chunk(chunk);
    const PlanTensor& tensor = plan.tensors().at(place.tensor);
    SEGUE_CHECK(chunk >= tensor.first_chunk && chunk - tensor.first_chunk < tensor.chunk_count);
    SEGUE_CHECK(place.offset == (chunk - tensor.first_chunk) * plan.chunk_size());
    SEGUE_CHECK(place.size > 0 && place.size <= plan.chunk_size());
    SEGUE_CHECK(place.size <= tensor.size - place.offset);
    const bool last = chunk - tensor.first_chunk + 1 == tensor.chunk_count;
    SEGUE_CHECK(last ? place.offset + place.size == tensor.size : place.size == plan.chunk_size());
  }
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size));
  const auto plan = segue::Plan::Parse(bytes);
  if (plan.ok()) {
    segue::CheckCanonical(plan.value(), bytes);
    segue::CheckChunks(plan.value());
  }
  return 0;
}
