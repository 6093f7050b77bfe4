// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of every kind share: loads and stores, element types, digest keys and sums over
// changes. Included by kernels-inl.h alone, inside the namespace of one instruction set.

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

inline uint32_t CountOnes(uint64_t word) {
  return static_cast<uint32_t>(__builtin_popcountll(word));
}

// Of a word that has one; anything below 64 for 0.
inline uint32_t LowestOne(uint64_t word) {
  return static_cast<uint32_t>(__builtin_ctzll(word | 1ull << 63));
}

inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// One block's key of each lane.
struct BlockKey {
  uint64_t lane0, lane1;
};

// Keys of one tensor's blocks, with the part that depends on the tensor alone formed once.
struct BlockKeys {
  uint64_t seed[2];
  explicit BlockKeys(uint64_t tensor) : seed{Mix(tensor << 1), Mix(tensor << 1 | 1)} {}
  uint64_t Key(unsigned lane, uint64_t block) const { return Mix(seed[lane] + block) | 1; }
  BlockKey Both(uint64_t block) const { return {Key(0, block), Key(1, block)}; }
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

// Sums over elements that change. No branch but on constants: a mispredicted one costs more than
// the products.
struct ChangeSums {
  uint64_t difference0 = 0, difference1 = 0, touched = 0;

  template <bool kTouched>
  void AddWord(uint64_t difference, uint64_t old_value, uint32_t word, BlockKey block) {
    const KeyPair keys = kKeyPairs.pair[word];
    const uint64_t key0 = keys.lane0 * block.lane0;
    difference0 += difference * key0;
    difference1 += difference * (keys.lane1 * block.lane1);
    if constexpr (kTouched) touched += old_value * key0;
  }

  // `offset`: of the element in its block, a multiple of W.
  template <unsigned W, bool kTouched>
  void Add(uint32_t offset, uint64_t old_value, uint64_t new_value, BlockKey block) {
    const uint32_t word = offset >> 2;
    if constexpr (W == 8) {
      const uint64_t low = old_value & 0xffffffffu;
      AddWord<kTouched>((new_value & 0xffffffffu) - low, low, word, block);
      AddWord<kTouched>((new_value >> 32) - (old_value >> 32), old_value >> 32, word + 1, block);
    } else {
      const unsigned shift = W == 4 ? 0 : 8 * (offset & 3);
      AddWord<kTouched>((new_value - old_value) << shift, old_value << shift, word, block);
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
