// SPDX-License-Identifier: Apache-2.0
//
// Kernels that run over every byte: digest, diff to a mask, XOR of a mask, byte planes. Included by
// kernels-inl.h alone, inside the namespace of one instruction set.

inline Digest DigestChunk(ChunkKey key, const byte* bytes, size_t size) {
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
uint32_t CountDiffering(const byte* a, const byte* b) {
  uint32_t count = 0;
  for (uint32_t start = 0; start < kDigestBlockSize; start += 64) {
    count += CountOnes(DifferingElements<W>(a + start, b + start));
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

inline DiffSums DiffDenseAnyWidth(ChunkKey key, const byte* base, const byte* target, size_t size,
                                  unsigned width, byte* mask) {
  switch (width) {
    case 1: return DiffDense<1>(key, base, target, size, mask);
    case 2: return DiffDense<2>(key, base, target, size, mask);
    case 4: return DiffDense<4>(key, base, target, size, mask);
    default: return DiffDense<8>(key, base, target, size, mask);
  }
}

inline DenseSums XorPreflight(ChunkKey key, const byte* live, const byte* mask, size_t size) {
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

// Bytes are written in ascending order of address, which the resolution of live weights relies on;
// hence no memcpy into them, whose order is its own.
inline Digest XorApply(ChunkKey key, byte* live, const byte* mask, size_t size) {
  const BlockKeys keys(key.tensor);
  uint64_t lanes[2] = {0, 0};
  alignas(64) byte buffer[kDigestBlockSize];
  for (size_t offset = 0; offset < size; offset += kDigestBlockSize) {
    const size_t part = Least(size - offset, kDigestBlockSize);
    if (part == kDigestBlockSize) {
      XorBlock(live + offset, mask + offset, live + offset);
    } else {
      for (size_t i = offset; i < size; ++i) live[i] ^= mask[i];
    }
    uint64_t sums[2];
    BlockSums(WholeBlock(live + offset, part, buffer), sums);
    keys.Add(key.first_block + offset / kDigestBlockSize, sums[0], sums[1], lanes);
  }
  Digest digest;
  SetDigest(digest, lanes);
  return digest;
}

inline void XorBytes(const byte* a, const byte* b, byte* target, size_t size) {
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

inline void SplitPlanesAnyWidth(const byte* elements, size_t count, unsigned width,
                                byte* const* planes) {
  switch (width) {
    case 1: return SplitPlanes<1>(elements, count, planes);
    case 2: return SplitPlanes<2>(elements, count, planes);
    case 4: return SplitPlanes<4>(elements, count, planes);
    default: return SplitPlanes<8>(elements, count, planes);
  }
}

inline void JoinPlanesAnyWidth(const byte* const* planes, size_t count, unsigned width,
                               uint64_t constants, byte* elements) {
  switch (width) {
    case 1: return JoinPlanes<1>(planes, count, constants, elements);
    case 2: return JoinPlanes<2>(planes, count, constants, elements);
    case 4: return JoinPlanes<4>(planes, count, constants, elements);
    default: return JoinPlanes<8>(planes, count, constants, elements);
  }
}
