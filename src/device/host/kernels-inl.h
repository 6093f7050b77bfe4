// SPDX-License-Identifier: Apache-2.0
//
// The kernels' algorithms, written once and compiled for each instruction set. A kernels_<isa>.cc
// defines its primitives in a namespace of its own, then includes this file inside it. Nothing here
// may call an inline function of another header: its code would be emitted with this file's
// instruction set and could be picked by the linker for processors that lack it. Hence plain
// pointers and own helpers.
//
// Primitives that the including file provides:
//   void BlockSums(const std::byte* block, std::uint64_t sums[2]);
//       Σ word × word key of each lane over one whole block.
//   std::uint64_t DifferingElements<W>(const std::byte* a, const std::byte* b);
//       64 bytes compared: bit k is set if the element of W bytes that begins at byte k differs.
//   void XorBlock(const std::byte* a, const std::byte* b, std::byte* target);
//       One whole block.

using std::byte;
using std::size_t;
using std::uint32_t;
using std::uint64_t;

template <typename T>
inline T Load(const byte* source) {
  T value;
  __builtin_memcpy(&value, source, sizeof(T));
  return value;
}

template <typename T>
inline void Store(byte* target, T value) {
  __builtin_memcpy(target, &value, sizeof(T));
}

template <unsigned W>
struct ElementOf;
template <>
struct ElementOf<1> {
  using Type = std::uint8_t;
};
template <>
struct ElementOf<2> {
  using Type = std::uint16_t;
};
template <>
struct ElementOf<4> {
  using Type = std::uint32_t;
};
template <>
struct ElementOf<8> {
  using Type = std::uint64_t;
};

inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Keys of one tensor's blocks, with the part that depends on the tensor alone formed once.
struct BlockKeys {
  uint64_t seed[2];
  explicit BlockKeys(uint64_t tensor) : seed{Mix(tensor << 1), Mix(tensor << 1 | 1)} {}
  uint64_t Key(unsigned lane, uint64_t block) const { return Mix(seed[lane] + block) | 1; }
  void Add(uint64_t block, uint64_t sum0, uint64_t sum1, uint64_t lanes[2]) const {
    lanes[0] += sum0 * Key(0, block);
    lanes[1] += sum1 * Key(1, block);
  }
};

// Word keys of both lanes side by side: one cache line serves a change.
struct KeyPair {
  uint32_t lane0, lane1;
};
struct KeyPairTable {
  KeyPair pair[kDigestBlockWords];
};
consteval KeyPairTable MakeKeyPairs() {
  KeyPairTable table{};
  for (size_t i = 0; i < kDigestBlockWords; ++i) {
    table.pair[i] = {kDigestWordKeys[0][i], kDigestWordKeys[1][i]};
  }
  return table;
}
alignas(64) constexpr KeyPairTable kKeyPairs = MakeKeyPairs();

// Sums of one block over the elements that change in it.
struct ChangeSums {
  uint64_t difference0 = 0, difference1 = 0, touched = 0;

  void AddWord(uint64_t difference, uint64_t old_value, uint32_t word, bool with_touched) {
    const KeyPair keys = kKeyPairs.pair[word];
    difference0 += difference * keys.lane0;
    difference1 += difference * keys.lane1;
    if (with_touched) touched += old_value * keys.lane0;
  }

  // `offset`: of the element in its block, a multiple of W.
  template <unsigned W, bool kTouched>
  void Add(uint32_t offset, uint64_t old_value, uint64_t new_value) {
    const uint32_t word = offset >> 2;
    if constexpr (W == 8) {
      AddWord((new_value & 0xffffffffu) - (old_value & 0xffffffffu), old_value & 0xffffffffu, word,
              kTouched);
      AddWord((new_value >> 32) - (old_value >> 32), old_value >> 32, word + 1, kTouched);
    } else {
      const unsigned shift = W == 4 ? 0 : 8 * (offset & 3);
      AddWord((new_value - old_value) << shift, old_value << shift, word, kTouched);
    }
  }
};

// A block's bytes, zero-padded in `buffer` where the chunk ends inside it.
inline const byte* WholeBlock(const byte* block, size_t size, byte* buffer) {
  if (size >= kDigestBlockSize) return block;
  __builtin_memcpy(buffer, block, size);
  __builtin_memset(buffer + size, 0, kDigestBlockSize - size);
  return buffer;
}

inline size_t Least(size_t a, size_t b) { return a < b ? a : b; }

inline void SetDigest(Digest& digest, const uint64_t lanes[2]) {
  digest.lane[0] = lanes[0];
  digest.lane[1] = lanes[1];
}

Digest DigestChunk(ChunkKey key, const byte* bytes, size_t size) {
  const BlockKeys keys(key.tensor);
  uint64_t lanes[2] = {0, 0};
  alignas(64) byte buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    uint64_t sums[2];
    BlockSums(WholeBlock(bytes + offset, size - offset, buffer), sums);
    keys.Add(key.first_block + offset / kDigestBlockSize, sums[0], sums[1], lanes);
  }
  Digest digest;
  SetDigest(digest, lanes);
  return digest;
}

template <unsigned W>
DiffSums DiffSparse(ChunkKey key, const byte* base, const byte* target, size_t size,
                    uint32_t count_max, uint32_t* positions, byte* values) {
  using T = typename ElementOf<W>::Type;
  const BlockKeys keys(key.tensor);
  uint64_t before[2] = {0, 0};
  uint64_t difference[2] = {0, 0};
  DiffSums result;
  uint32_t count = 0;
  alignas(64) byte base_buffer[kDigestBlockSize];
  alignas(64) byte target_buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const byte* a = WholeBlock(base + offset, size - offset, base_buffer);
    const byte* b = WholeBlock(target + offset, size - offset, target_buffer);
    uint64_t sums[2];
    BlockSums(a, sums);
    const uint64_t block = key.first_block + offset / kDigestBlockSize;
    const uint64_t key0 = keys.Key(0, block);
    const uint64_t key1 = keys.Key(1, block);
    before[0] += sums[0] * key0;
    before[1] += sums[1] * key1;
    ChangeSums change;
    for (uint32_t start = 0; start < kDigestBlockSize; start += 64) {
      uint64_t differing = DifferingElements<W>(a + start, b + start);
      while (differing != 0) {
        const uint32_t place = start + static_cast<uint32_t>(__builtin_ctzll(differing));
        differing &= differing - 1;
        const T old_value = Load<T>(a + place);
        const T new_value = Load<T>(b + place);
        positions[count] = static_cast<uint32_t>(offset + place) / W;
        Store<T>(values + size_t{count} * W, static_cast<T>(old_value ^ new_value));
        ++count;
        change.template Add<W, true>(place, old_value, new_value);
      }
    }
    difference[0] += change.difference0 * key0;
    difference[1] += change.difference1 * key1;
    result.touched += change.touched * key0;
    if (count > count_max) {
      result.overflow = true;
      result.change_count = count;
      return result;
    }
  }
  SetDigest(result.before, before);
  const uint64_t after[2] = {before[0] + difference[0], before[1] + difference[1]};
  SetDigest(result.after, after);
  result.change_count = count;
  return result;
}

template <unsigned W>
uint32_t CountDiffering(const byte* a, const byte* b) {
  uint32_t count = 0;
  for (uint32_t start = 0; start < kDigestBlockSize; start += 64) {
    count +=
        static_cast<uint32_t>(__builtin_popcountll(DifferingElements<W>(a + start, b + start)));
  }
  return count;
}

template <unsigned W>
DiffSums DiffDense(ChunkKey key, const byte* base, const byte* target, size_t size, byte* mask) {
  const BlockKeys keys(key.tensor);
  uint64_t before[2] = {0, 0};
  uint64_t after[2] = {0, 0};
  DiffSums result;
  alignas(64) byte base_buffer[kDigestBlockSize];
  alignas(64) byte target_buffer[kDigestBlockSize];
  alignas(64) byte mask_buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const size_t part = Least(size - offset, kDigestBlockSize);
    const byte* a = WholeBlock(base + offset, part, base_buffer);
    const byte* b = WholeBlock(target + offset, part, target_buffer);
    const uint64_t block = key.first_block + offset / kDigestBlockSize;
    uint64_t sums[2];
    BlockSums(a, sums);
    keys.Add(block, sums[0], sums[1], before);
    BlockSums(b, sums);
    keys.Add(block, sums[0], sums[1], after);
    result.change_count += CountDiffering<W>(a, b);
    if (part == kDigestBlockSize) {
      XorBlock(a, b, mask + offset);
    } else {
      XorBlock(a, b, mask_buffer);
      __builtin_memcpy(mask + offset, mask_buffer, part);
    }
  }
  SetDigest(result.before, before);
  SetDigest(result.after, after);
  return result;
}

// Reads the positions of a sparse row from front to back.
class PositionReader {
 public:
  explicit PositionReader(const SparseChunk& chunk)
      : high_(chunk.high),
        low_(chunk.low),
        low_bits_(chunk.low_bits),
        low_mask_((1u << chunk.low_bits) - 1),
        word_(Load<uint64_t>(chunk.high)) {}

  // The next `count` positions; the caller knows that they exist.
  void Read(uint32_t* target, uint32_t count) {
    uint64_t word = word_;
    for (uint32_t k = 0; k < count; ++k) {
      while (word == 0) {
        high_ += 8;
        place_ += 64;
        word = Load<uint64_t>(high_);
      }
      const uint64_t part = place_ + static_cast<uint64_t>(__builtin_ctzll(word)) - index_;
      word &= word - 1;
      const uint64_t bit = index_ * low_bits_;
      const auto low =
          static_cast<uint32_t>(Load<uint64_t>(low_ + bit / 8) >> (bit & 7)) & low_mask_;
      target[k] = static_cast<uint32_t>(part << low_bits_) | low;
      ++index_;
    }
    word_ = word;
  }

 private:
  const byte* high_;
  const byte* low_;
  unsigned low_bits_;
  uint32_t low_mask_;
  uint64_t word_;
  uint64_t place_ = 0;  // Bit number of the current word's first bit.
  uint64_t index_ = 0;
};

// Positions are decoded a batch ahead and their cache lines asked for, so that the misses of a
// batch overlap. Tuned on 2 GiB with 0.085 % changes (docs/performance.md).
constexpr uint32_t kBatch = 32;

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
inline void PrefetchBatch(const byte* live, const uint32_t* positions, uint32_t count) {
  for (uint32_t k = 0; k < count; ++k) {
    __builtin_prefetch(live + size_t{positions[k]} * W, kWrite ? 1 : 0, 3);
  }
}

// State of the loop over one row's changes.
struct SparseRun {
  const BlockKeys keys;
  uint64_t first_block;
  uint64_t block = 0;
  ChangeSums sums;
  uint64_t difference[2] = {0, 0};
  uint64_t touched = 0;

  explicit SparseRun(ChunkKey key) : keys(key.tensor), first_block(key.first_block) {}

  void Flush(uint64_t next_block) {
    const uint64_t key0 = keys.Key(0, first_block + block);
    difference[0] += sums.difference0 * key0;
    difference[1] += sums.difference1 * keys.Key(1, first_block + block);
    touched += sums.touched * key0;
    sums = ChangeSums();
    block = next_block;
  }
};

template <unsigned W, bool kWrite>
inline void ApplyBatch(SparseRun& run, byte* live, const uint32_t* positions,
                       const typename ElementOf<W>::Type* values, uint32_t count) {
  using T = typename ElementOf<W>::Type;
  // A copy, which stays in registers: a store to `live` could change `run`, as far as a compiler
  // knows.
  ChangeSums sums = run.sums;
  uint64_t current = run.block;
  for (uint32_t k = 0; k < count; ++k) {
    const size_t place = size_t{positions[k]} * W;
    const uint64_t block = place / kDigestBlockSize;
    if (block != current) {
      run.sums = sums;
      run.Flush(block);
      sums = ChangeSums();
      current = block;
    }
    const T old_value = Load<T>(live + place);
    const T new_value = static_cast<T>(old_value ^ values[k]);
    if constexpr (kWrite) Store<T>(live + place, new_value);
    sums.template Add<W, !kWrite>(static_cast<uint32_t>(place % kDigestBlockSize), old_value,
                                  new_value);
  }
  run.sums = sums;
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
  using T = typename ElementOf<W>::Type;
  SparseRun run(key);
  SparseSums result;
  PositionReader reader(chunk);
  uint32_t positions[2][kBatch];
  T values[kBatch];
  uint64_t last = 0;
  uint32_t ready = static_cast<uint32_t>(Least(kBatch, chunk.change_count));
  reader.Read(positions[0], ready);
  PrefetchBatch<W, kWrite>(live, positions[0], ready);
  for (uint32_t first = 0, side = 0; ready != 0; side ^= 1) {
    const uint32_t left = chunk.change_count - first - ready;
    const auto next = static_cast<uint32_t>(Least(kBatch, left));
    reader.Read(positions[side ^ 1], next);
    PrefetchBatch<W, kWrite>(live, positions[side ^ 1], next);
    ReadValues<W>(chunk, first, ready, values);
    if constexpr (!kWrite) {
      if (!BatchIsValid(positions[side], values, ready, chunk.element_count, last)) {
        result.valid = false;
        return result;
      }
    }
    ApplyBatch<W, kWrite>(run, live, positions[side], values, ready);
    first += ready;
    ready = next;
  }
  run.Flush(0);
  SetDigest(result.difference, run.difference);
  result.touched = run.touched;
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

SparseSums SparsePreflight(ChunkKey key, const SparseChunk& chunk, const byte* live) {
  return RunSparseAnyWidth<false>(key, chunk, const_cast<byte*>(live));
}

SparseSums SparseApply(ChunkKey key, const SparseChunk& chunk, byte* live) {
  return RunSparseAnyWidth<true>(key, chunk, live);
}

DenseSums XorPreflight(ChunkKey key, const byte* live, const byte* mask, size_t size) {
  const BlockKeys keys(key.tensor);
  uint64_t before[2] = {0, 0};
  uint64_t after[2] = {0, 0};
  alignas(64) byte live_buffer[kDigestBlockSize];
  alignas(64) byte mask_buffer[kDigestBlockSize];
  alignas(64) byte result_buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const byte* block_live = WholeBlock(live + offset, size - offset, live_buffer);
    const byte* block_mask = WholeBlock(mask + offset, size - offset, mask_buffer);
    const uint64_t block = key.first_block + offset / kDigestBlockSize;
    uint64_t sums[2];
    BlockSums(block_live, sums);
    keys.Add(block, sums[0], sums[1], before);
    XorBlock(block_live, block_mask, result_buffer);
    BlockSums(result_buffer, sums);
    keys.Add(block, sums[0], sums[1], after);
  }
  DenseSums result;
  SetDigest(result.before, before);
  SetDigest(result.after, after);
  return result;
}

Digest XorApply(ChunkKey key, byte* live, const byte* mask, size_t size) {
  const BlockKeys keys(key.tensor);
  uint64_t lanes[2] = {0, 0};
  alignas(64) byte live_buffer[kDigestBlockSize];
  alignas(64) byte mask_buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const size_t part = Least(size - offset, kDigestBlockSize);
    const byte* block_mask = WholeBlock(mask + offset, part, mask_buffer);
    byte* block_live = live + offset;
    if (part < kDigestBlockSize) {
      WholeBlock(block_live, part, live_buffer);
      block_live = live_buffer;
    }
    XorBlock(block_live, block_mask, block_live);
    uint64_t sums[2];
    BlockSums(block_live, sums);
    keys.Add(key.first_block + offset / kDigestBlockSize, sums[0], sums[1], lanes);
    if (part < kDigestBlockSize) __builtin_memcpy(live + offset, live_buffer, part);
  }
  Digest digest;
  SetDigest(digest, lanes);
  return digest;
}

void XorBytes(const byte* a, const byte* b, byte* target, size_t size) {
  size_t offset = 0;
  for (; offset + kDigestBlockSize <= size; offset += kDigestBlockSize) {
    XorBlock(a + offset, b + offset, target + offset);
  }
  for (; offset < size; ++offset) target[offset] = a[offset] ^ b[offset];
}

template <unsigned W>
void SplitPlanes(const byte* elements, size_t count, byte* const* planes) {
  for (unsigned p = 0; p < W; ++p) {
    byte* plane = planes[p];
    for (size_t i = 0; i < count; ++i) plane[i] = elements[i * W + p];
  }
}

// A segment at a time, plane by plane, so that each inner loop has one source and vectorises.
template <unsigned W>
void JoinPlanes(const byte* const* planes, size_t count, uint64_t constants, byte* elements) {
  using T = typename ElementOf<W>::Type;
  constexpr size_t kSegment = 1024;
  T segment[kSegment];
  for (size_t first = 0; first < count; first += kSegment) {
    const size_t part = Least(kSegment, count - first);
    for (size_t i = 0; i < part; ++i) segment[i] = static_cast<T>(constants);
    for (unsigned p = 0; p < W; ++p) {
      if (planes[p] == nullptr) continue;
      const byte* plane = planes[p] + first;
      for (size_t i = 0; i < part; ++i) {
        segment[i] =
            static_cast<T>(segment[i] | static_cast<T>(static_cast<uint64_t>(plane[i]) << (8 * p)));
      }
    }
    __builtin_memcpy(elements + first * W, segment, part * W);
  }
}

DiffSums DiffSparseAnyWidth(ChunkKey key, const byte* base, const byte* target, size_t size,
                            unsigned width, uint32_t count_max, uint32_t* positions, byte* values) {
  switch (width) {
    case 1: return DiffSparse<1>(key, base, target, size, count_max, positions, values);
    case 2: return DiffSparse<2>(key, base, target, size, count_max, positions, values);
    case 4: return DiffSparse<4>(key, base, target, size, count_max, positions, values);
    default: return DiffSparse<8>(key, base, target, size, count_max, positions, values);
  }
}

DiffSums DiffDenseAnyWidth(ChunkKey key, const byte* base, const byte* target, size_t size,
                           unsigned width, byte* mask) {
  switch (width) {
    case 1: return DiffDense<1>(key, base, target, size, mask);
    case 2: return DiffDense<2>(key, base, target, size, mask);
    case 4: return DiffDense<4>(key, base, target, size, mask);
    default: return DiffDense<8>(key, base, target, size, mask);
  }
}

void SplitPlanesAnyWidth(const byte* elements, size_t count, unsigned width, byte* const* planes) {
  switch (width) {
    case 1: return SplitPlanes<1>(elements, count, planes);
    case 2: return SplitPlanes<2>(elements, count, planes);
    case 4: return SplitPlanes<4>(elements, count, planes);
    default: return SplitPlanes<8>(elements, count, planes);
  }
}

void JoinPlanesAnyWidth(const byte* const* planes, size_t count, unsigned width, uint64_t constants,
                        byte* elements) {
  switch (width) {
    case 1: return JoinPlanes<1>(planes, count, constants, elements);
    case 2: return JoinPlanes<2>(planes, count, constants, elements);
    case 4: return JoinPlanes<4>(planes, count, constants, elements);
    default: return JoinPlanes<8>(planes, count, constants, elements);
  }
}

constexpr Kernels MakeKernels(std::string_view name) {
  return {name,
          DigestChunk,
          DiffSparseAnyWidth,
          DiffDenseAnyWidth,
          SparsePreflight,
          SparseApply,
          XorPreflight,
          XorApply,
          XorBytes,
          SplitPlanesAnyWidth,
          JoinPlanesAnyWidth};
}
