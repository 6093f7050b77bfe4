// SPDX-License-Identifier: Apache-2.0
//
// For tests of this folder and of those above it: small models in memory, pairs of versions with a
// given share of changes, and payloads of them. Tensors lie back to back at odd addresses, as in a
// file with an unpadded header (case A6). A helper that fails ends the test program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "delta/applier.h"
#include "delta/encoder.h"
#include "delta/model_view.h"
#include "delta/staged_delta.h"

namespace segue::test {

// Bytes of every tensor of a plan. Copies are independent.
class Model {
 public:
  explicit Model(const Plan& plan, std::uint64_t seed = 0) : bytes_(1 + plan.model_size()) {
    Random random(seed);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random.Next() >> 56);
    std::size_t offset = 1;
    for (const PlanTensor& tensor : plan.tensors()) {
      offsets_.push_back(offset);
      offset += tensor.size;
    }
  }

  bool operator==(const Model&) const = default;

  std::byte* Tensor(std::size_t tensor) { return bytes_.data() + offsets_[tensor]; }
  MutableByteSpan bytes() { return MutableByteSpan(bytes_).subspan(1); }

  ModelView view() const {
    std::vector<const std::byte*> tensors;
    for (const std::size_t offset : offsets_) tensors.push_back(bytes_.data() + offset);
    return ModelView(std::move(tensors));
  }
  MutableModelView live() {
    std::vector<std::byte*> tensors;
    for (const std::size_t offset : offsets_) tensors.push_back(bytes_.data() + offset);
    return MutableModelView(std::move(tensors));
  }

 private:
  ByteVector bytes_;
  std::vector<std::size_t> offsets_;
};

// A tensor of about `size` bytes (cut to whole elements, those to whole bytes).
inline TensorSpec SpecOfSize(std::string name, Dtype dtype, std::uint64_t size) {
  const unsigned bits = DtypeBits(dtype);
  const std::uint64_t count = size * 8 / bits;
  return {std::move(name), dtype, {bits < 8 ? count / 4 * 4 : count}};
}

inline Plan OneTensorPlan(Dtype dtype, std::uint64_t size, std::uint64_t chunk_size) {
  return Plan::Make({SpecOfSize("w", dtype, size)}, chunk_size).value();
}

// Flips bits in about `share` of the elements of every tensor (one at least, where share > 0).
// `bits`: which of an element's lowest byte may flip; 0xff and up: any byte of the element.
inline void Mutate(const Plan& plan, Model& model, double share, std::uint64_t seed,
                   std::uint64_t bits = 0x100) {
  Random random(seed);
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const PlanTensor& tensor = plan.tensors()[t];
    const unsigned width = DtypeWidth(tensor.spec.dtype);
    const std::uint64_t count = tensor.size / width;
    if (count == 0 || share == 0) continue;
    const std::uint64_t always = random.Below(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i != always && random.Uniform() >= share) continue;
      std::byte* element = model.Tensor(t) + i * width;
      if (bits < 0x100) {
        element[0] ^= static_cast<std::byte>(std::max<std::uint64_t>(random.Next() & bits, 1));
        continue;
      }
      for (unsigned p = 0; p < width; ++p)
        element[p] ^= static_cast<std::byte>(random.Next() >> 56);
      element[random.Below(width)] ^= static_cast<std::byte>(1 + random.Below(255));
    }
  }
}

struct Encoded {
  ByteVector payload;
  EncodeReport report;
};

inline Encoded Encode(const Plan& plan, const Model& base, const Model& target,
                      const EncodeOptions& options) {
  Encoded encoded;
  encoded.report = EncodeDelta(plan, base.view(), target.view(), options, [&](ByteSpan bytes) {
                     AppendBytes(encoded.payload, bytes);
                     return Status();
                   }).value();
  return encoded;
}

inline StagedDelta Stage(const Plan& plan, ByteSpan payload) {
  return StagedDelta::Stage(plan, std::span(&payload, 1), 2).value();
}

// Preflight, then apply, on this machine's memory.
inline Status PreflightAndApply(const Plan& plan, const StagedDelta& staged, Model& model) {
  const auto device = MakeHostDevice(2);
  Applier applier(plan, staged, model.live(), *device);
  const Model before = model;
  const Status status = applier.Preflight();
  SEGUE_CHECK(model == before);  // A preflight writes nothing.
  SEGUE_RETURN_IF_ERROR(status);
  return applier.Apply();
}

inline Status Preflight(const Plan& plan, const StagedDelta& staged, Model& model) {
  const auto device = MakeHostDevice(2);
  Applier applier(plan, staged, model.live(), *device);
  return applier.Preflight();
}

// Writes one payload from groups that `fill` puts rows into.
template <typename Fill>
ByteVector WritePayload(Fill fill) {
  ByteVector payload;
  PayloadWriter writer([&](ByteSpan bytes) {
    AppendBytes(payload, bytes);
    return Status();
  });
  GroupBuilder group;
  fill(group);
  if (!group.empty()) SEGUE_CHECK(writer.Append(group.Finish().value()).ok());
  SEGUE_CHECK(writer.Finish().ok());
  return payload;
}

// The staged rows again, each after `edit(row)`: for payloads that lie.
template <typename Edit>
ByteVector Rewrite(const Plan& plan, const StagedDelta& staged, Edit edit) {
  return WritePayload([&](GroupBuilder& group) {
    for (std::size_t i = 0; i < staged.rows().size(); ++i) {
      ChunkRow row = staged.rows()[i];
      edit(row);
      group.AddRow(row, staged.Parts(plan, i));
    }
  });
}

inline constexpr Encoding kEncodings[] = {Encoding::kSparse, Encoding::kPlanes, Encoding::kSnappy,
                                          Encoding::kLz4,    Encoding::kZstd,   Encoding::kRaw};

// Adds one chunk in `encoding`, whatever its density; raw where a mask does not compress.
inline void AddAs(std::uint64_t chunk, const ChunkPlace& place, const std::byte* base,
                  const std::byte* target, Encoding encoding, GroupBuilder& group) {
  const host::Kernels& kernels = host::ActiveKernels();
  const host::ChunkKey key = {place.tensor, place.offset / kDigestBlockSize};
  const auto count_max = static_cast<std::uint32_t>(place.size / place.width);
  std::vector<std::uint32_t> positions(count_max + kDigestBlockSize);
  ByteVector values(positions.size() * place.width);
  const host::DiffSums found = kernels.diff_sparse(key, base, target, place.size, place.width,
                                                   count_max, positions.data(), values.data());
  if (found.change_count == 0) return;
  RowSums sums = {found.before, found.after, found.touched, found.change_count};
  if (encoding == Encoding::kSparse) {
    group.AddSparse(chunk, place, sums, std::span(positions).first(found.change_count),
                    values.data());
    return;
  }
  ByteVector mask(place.size);
  kernels.xor_bytes(base, target, mask.data(), place.size);
  if (encoding == Encoding::kPlanes) return group.AddPlanes(chunk, place, sums, mask);
  ByteVector data(std::max({SnappyBound(place.size), Lz4Bound(place.size), ZstdBound(place.size)}));
  std::size_t size = place.size;
  if (encoding == Encoding::kSnappy) size = SnappyCompress(mask, data);
  if (encoding == Encoding::kLz4) size = Lz4Compress(mask, data);
  if (encoding == Encoding::kZstd) size = ZstdCompressor().Compress(mask, data).value();
  if (encoding == Encoding::kRaw || size > place.size) {
    group.AddDense(chunk, place, sums, Encoding::kRaw, ByteSpan(target, place.size));
  } else {
    group.AddDense(chunk, place, sums, encoding, ByteSpan(data).first(size));
  }
}

// base -> target with chunk k in encodings[k % size].
inline ByteVector EncodeAs(const Plan& plan, const Model& base, const Model& target,
                           std::span<const Encoding> encodings) {
  return WritePayload([&](GroupBuilder& group) {
    for (std::uint64_t chunk = 0; chunk < plan.chunk_count(); ++chunk) {
      const ChunkPlace place = plan.Chunk(chunk);
      AddAs(chunk, place, base.view().Chunk(place), target.view().Chunk(place),
            encodings[chunk % encodings.size()], group);
    }
  });
}

}  // namespace segue::test
