// SPDX-License-Identifier: Apache-2.0
//
// Kernels whose work follows the number of changes: diff to positions and values, preflight and
// apply of `sparse` rows. Included by kernels-inl.h alone, inside the namespace of one instruction
// set.

// Offsets of the elements of one block that differ, in order; returns their count. What is written
// beyond it is not meant. Two passes without a branch on the data, but for lines of many changes:
// lines that differ, then four offsets of each without asking how many there are.
template <unsigned W>
inline uint32_t FindDiffering(const byte* a, const byte* b, uint32_t* offsets) {
  uint64_t masks[kDigestBlockSize / 64 + 1];
  uint32_t starts[kDigestBlockSize / 64 + 1];
  uint32_t lines = 0;
  for (uint32_t start = 0; start < kDigestBlockSize; start += 64) {
    const uint64_t differing = DifferingElements<W>(a + start, b + start);
    masks[lines] = differing;
    starts[lines] = start;
    lines += differing != 0 ? 1 : 0;
  }
  uint32_t count = 0;
  for (uint32_t line = 0; line < lines; ++line) {
    uint64_t differing = masks[line];
    const uint32_t ones = CountOnes(differing);
    for (uint32_t done = 0; done < ones; done += 4) {
      for (uint32_t k = 0; k < 4; ++k) {
        offsets[count + done + k] = starts[line] + LowestOne(differing);
        differing &= differing - 1;
      }
    }
    count += ones;
  }
  return count;
}

template <unsigned W>
DiffSums DiffSparse(ChunkKey key, const byte* base, const byte* target, size_t size,
                    uint32_t count_max, uint32_t* positions, byte* values) {
  using T = typename ElementOf<W>::Type;
  const BlockKeys keys(key.tensor);
  uint64_t before[2] = {0, 0};
  ChangeSums change;
  DiffSums result;
  uint32_t count = 0;
  alignas(64) byte base_buffer[kDigestBlockSize];
  alignas(64) byte target_buffer[kDigestBlockSize];
  uint32_t offsets[kDigestBlockSize / W + 4];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const byte* a = WholeBlock(base + offset, size - offset, base_buffer);
    const byte* b = WholeBlock(target + offset, size - offset, target_buffer);
    uint64_t sums[2];
    BlockSums(a, sums);
    const BlockKey block = keys.Both(key.first_block + offset / kDigestBlockSize);
    before[0] += sums[0] * block.lane0;
    before[1] += sums[1] * block.lane1;
    const uint32_t found = FindDiffering<W>(a, b, offsets);
    for (uint32_t k = 0; k < found; ++k) {
      const T old_value = Load<T>(a + offsets[k]);
      const T new_value = Load<T>(b + offsets[k]);
      positions[count] = static_cast<uint32_t>(offset + offsets[k]) / W;
      Store<T>(values + size_t{count} * W, static_cast<T>(old_value ^ new_value));
      ++count;
      change.template Add<W, true>(offsets[k], old_value, new_value, block);
    }
    if (count > count_max) {
      result.overflow = true;
      result.change_count = count;
      return result;
    }
  }
  SetDigest(result.before, before);
  const uint64_t after[2] = {before[0] + change.difference0, before[1] + change.difference1};
  SetDigest(result.after, after);
  result.touched = change.touched;
  result.change_count = count;
  return result;
}

inline DiffSums DiffSparseAnyWidth(ChunkKey key, const byte* base, const byte* target, size_t size,
                                   unsigned width, uint32_t count_max, uint32_t* positions,
                                   byte* values) {
  switch (width) {
    case 1: return DiffSparse<1>(key, base, target, size, count_max, positions, values);
    case 2: return DiffSparse<2>(key, base, target, size, count_max, positions, values);
    case 4: return DiffSparse<4>(key, base, target, size, count_max, positions, values);
    default: return DiffSparse<8>(key, base, target, size, count_max, positions, values);
  }
}

// Changes are taken in batches: positions are decoded a batch ahead, and while a batch is applied
// the cache lines of the next one are asked for one by one, so that memory never waits for
// arithmetic. A batch ends with a word of the high bits once it has kBatch changes
// (docs/performance.md).
constexpr uint32_t kBatch = 64;
constexpr uint32_t kBatchMax = kBatch - 1 + 64;
// Ones of a word are written this many at a time without asking how many there are.
constexpr uint32_t kOnesStep = 16;

// Reads the positions of a sparse row from front to back.
class PositionReader {
 public:
  explicit PositionReader(const SparseChunk& chunk)
      : high_(chunk.high),
        low_(chunk.low),
        low_bits_(chunk.low_bits),
        low_mask_((1u << chunk.low_bits) - 1),
        left_(chunk.change_count) {}

  // The next batch's count, 0 at the end. `target` has room for kBatchMax + kOnesStep.
  uint32_t Read(uint32_t* target) {
    uint32_t count = 0;
    while (count < kBatch && count < left_) {
      uint64_t word = Load<uint64_t>(high_);
      const uint32_t ones = CountOnes(word);
      for (uint32_t done = 0; done < ones; done += kOnesStep) {
        for (uint32_t k = 0; k < kOnesStep; ++k) {
          target[count + done + k] = place_ + LowestOne(word);
          word &= word - 1;
        }
      }
      count += ones;
      high_ += 8;
      place_ += 64;
    }
    for (uint32_t k = 0; k < count; ++k) {
      const uint64_t index = index_ + k;
      const uint64_t bit = index * low_bits_;
      const auto low =
          static_cast<uint32_t>(Load<uint64_t>(low_ + bit / 8) >> (bit & 7)) & low_mask_;
      target[k] = (target[k] - static_cast<uint32_t>(index)) << low_bits_ | low;
    }
    index_ += count;
    left_ -= count;
    return count;
  }

 private:
  const byte* high_;
  const byte* low_;
  unsigned low_bits_;
  uint32_t low_mask_;
  uint32_t left_;
  uint32_t place_ = 0;  // Bit number of the next word's first bit.
  uint64_t index_ = 0;
};

template <unsigned W>
inline void ReadValues(const SparseChunk& chunk, uint32_t first, uint32_t count,
                       typename ElementOf<W>::Type* values) {
  using T = typename ElementOf<W>::Type;
  const T constants = static_cast<T>(chunk.constants);
  for (uint32_t k = 0; k < count; ++k) values[k] = constants;
  for (unsigned p = 0; p < W; ++p) {
    if (chunk.plane[p] == nullptr) continue;
    const byte* plane = chunk.plane[p] + first;
    for (uint32_t k = 0; k < count; ++k) {
      values[k] =
          static_cast<T>(values[k] | static_cast<T>(static_cast<uint64_t>(plane[k]) << (8 * p)));
    }
  }
}

template <unsigned W, bool kWrite>
inline void Prefetch(const byte* live, uint32_t position) {
  __builtin_prefetch(live + size_t{position} * W, kWrite ? 1 : 0, 3);
}

// Decoded changes.
template <unsigned W>
struct Batch {
  uint32_t count = 0;
  uint32_t positions[kBatchMax + kOnesStep] = {};
  typename ElementOf<W>::Type values[kBatchMax];
};

// Changes of `batch`; asks for the lines of the same number of changes of `next`, existing or not
// (a position that is left over from an earlier batch does no harm). `key_of(block)`: the key of a
// block of the chunk.
template <unsigned W, bool kWrite, typename KeyOf>
inline void ApplyChanges(ChangeSums& sums, byte* live, const Batch<W>& batch, const Batch<W>& next,
                         KeyOf key_of) {
  using T = typename ElementOf<W>::Type;
  // A copy, which stays in registers: a store to `live` could change `sums`, as far as a compiler
  // knows.
  ChangeSums local = sums;
  for (uint32_t k = 0; k < batch.count; ++k) {
    Prefetch<W, kWrite>(live, next.positions[k]);
    const size_t place = size_t{batch.positions[k]} * W;
    const T old_value = Load<T>(live + place);
    const T new_value = static_cast<T>(old_value ^ batch.values[k]);
    if constexpr (kWrite) Store<T>(live + place, new_value);
    local.template Add<W, !kWrite>(static_cast<uint32_t>(place % kDigestBlockSize), old_value,
                                   new_value, key_of(place / kDigestBlockSize));
  }
  sums = local;
}

// Block keys are made for all blocks that the batch spans, or one for each change where those are
// fewer. The batch's positions ascend.
template <unsigned W, bool kWrite>
inline void ApplyBatch(const BlockKeys& keys, uint64_t first_block, ChangeSums& sums, byte* live,
                       const Batch<W>& batch, const Batch<W>& next) {
  const uint64_t first = size_t{batch.positions[0]} * W / kDigestBlockSize;
  const uint64_t last = size_t{batch.positions[batch.count - 1]} * W / kDigestBlockSize;
  const uint64_t span = last - first + 1;
  if (span > batch.count) {
    ApplyChanges<W, kWrite>(sums, live, batch, next,
                            [&](uint64_t block) { return keys.Both(first_block + block); });
  } else {
    BlockKey made[kBatchMax];
    for (uint64_t i = 0; i < span; ++i) made[i] = keys.Both(first_block + first + i);
    ApplyChanges<W, kWrite>(sums, live, batch, next,
                            [&](uint64_t block) { return made[block - first]; });
  }
  for (uint32_t k = batch.count; k < next.count; ++k) Prefetch<W, kWrite>(live, next.positions[k]);
}

// Order, bound and masks of one batch; `last` is one more than the position before it (0 at first).
// Where positions ascend, the last one alone needs the bound. Without branches, so that both loops
// vectorise.
template <typename T>
inline bool BatchIsValid(const uint32_t* positions, const T* values, uint32_t count,
                         uint32_t element_count, uint64_t& last) {
  uint32_t disorder = 0;
  for (uint32_t k = 1; k < count; ++k) disorder |= positions[k] <= positions[k - 1] ? 1u : 0u;
  T zeros = 0;
  for (uint32_t k = 0; k < count; ++k) zeros = static_cast<T>(zeros | (values[k] == 0 ? 1 : 0));
  const bool valid =
      (disorder | zeros) == 0 && positions[0] >= last && positions[count - 1] < element_count;
  last = uint64_t{positions[count - 1]} + 1;
  return valid;
}

template <unsigned W, bool kWrite>
SparseSums RunSparse(ChunkKey key, const SparseChunk& chunk, byte* live) {
  const BlockKeys keys(key.tensor);
  ChangeSums sums;
  SparseSums result;
  PositionReader reader(chunk);
  Batch<W> batches[2];
  batches[0].count = reader.Read(batches[0].positions);
  for (uint32_t k = 0; k < batches[0].count; ++k) {
    Prefetch<W, kWrite>(live, batches[0].positions[k]);
  }
  uint64_t last = 0;
  for (uint32_t first = 0, side = 0; batches[side].count != 0; side ^= 1) {
    Batch<W>& batch = batches[side];
    Batch<W>& next = batches[side ^ 1];
    next.count = reader.Read(next.positions);
    ReadValues<W>(chunk, first, batch.count, batch.values);
    if constexpr (!kWrite) {
      if (!BatchIsValid(batch.positions, batch.values, batch.count, chunk.element_count, last)) {
        result.valid = false;
        return result;
      }
    }
    ApplyBatch<W, kWrite>(keys, key.first_block, sums, live, batch, next);
    first += batch.count;
  }
  const uint64_t difference[2] = {sums.difference0, sums.difference1};
  SetDigest(result.difference, difference);
  result.touched = sums.touched;
  return result;
}

template <bool kWrite>
SparseSums RunSparseAnyWidth(ChunkKey key, const SparseChunk& chunk, byte* live) {
  switch (chunk.width) {
    case 1: return RunSparse<1, kWrite>(key, chunk, live);
    case 2: return RunSparse<2, kWrite>(key, chunk, live);
    case 4: return RunSparse<4, kWrite>(key, chunk, live);
    default: return RunSparse<8, kWrite>(key, chunk, live);
  }
}

inline SparseSums SparsePreflight(ChunkKey key, const SparseChunk& chunk, const byte* live) {
  return RunSparseAnyWidth<false>(key, chunk, const_cast<byte*>(live));
}

inline SparseSums SparseApply(ChunkKey key, const SparseChunk& chunk, byte* live) {
  return RunSparseAnyWidth<true>(key, chunk, live);
}
