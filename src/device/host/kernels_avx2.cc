// SPDX-License-Identifier: Apache-2.0
//
// AVX2 kernels (Haswell, Zen and newer). Compiled with their own instruction set; called only after
// detection (dispatch.cc).
#include "device/host/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>

namespace segue::host {
namespace avx2 {

inline __m256i LoadVector(const std::byte* source) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
}

inline std::uint64_t AddLanes(__m256i v) {
  const __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(pair)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(pair, 1));
}

// _mm256_mul_epu32 takes the even words; the odd ones are shifted into their places.
inline void BlockSums(const std::byte* block, std::uint64_t sums[2]) {
  __m256i even0 = _mm256_setzero_si256();
  __m256i odd0 = even0;
  __m256i even1 = even0;
  __m256i odd1 = even0;
  for (std::size_t i = 0; i < kDigestBlockWords; i += 8) {
    const __m256i words = LoadVector(block + 4 * i);
    const __m256i words_odd = _mm256_srli_epi64(words, 32);
    const __m256i keys0 =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(&kDigestWordKeys[0][i]));
    const __m256i keys1 =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(&kDigestWordKeys[1][i]));
    even0 = _mm256_add_epi64(even0, _mm256_mul_epu32(words, keys0));
    odd0 = _mm256_add_epi64(odd0, _mm256_mul_epu32(words_odd, _mm256_srli_epi64(keys0, 32)));
    even1 = _mm256_add_epi64(even1, _mm256_mul_epu32(words, keys1));
    odd1 = _mm256_add_epi64(odd1, _mm256_mul_epu32(words_odd, _mm256_srli_epi64(keys1, 32)));
  }
  sums[0] = AddLanes(_mm256_add_epi64(even0, odd0));
  sums[1] = AddLanes(_mm256_add_epi64(even1, odd1));
}

template <unsigned W>
inline std::uint32_t EqualBytes(__m256i a, __m256i b) {
  __m256i equal;
  if constexpr (W == 1) equal = _mm256_cmpeq_epi8(a, b);
  if constexpr (W == 2) equal = _mm256_cmpeq_epi16(a, b);
  if constexpr (W == 4) equal = _mm256_cmpeq_epi32(a, b);
  if constexpr (W == 8) equal = _mm256_cmpeq_epi64(a, b);
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(equal));
}

template <unsigned W>
inline std::uint64_t DifferingElements(const std::byte* a, const std::byte* b) {
  constexpr std::uint64_t kFirstBytes = W == 1   ? ~0ull
                                        : W == 2 ? 0x5555555555555555ull
                                        : W == 4 ? 0x1111111111111111ull
                                                 : 0x0101010101010101ull;
  const std::uint64_t low = EqualBytes<W>(LoadVector(a), LoadVector(b));
  const std::uint64_t high = EqualBytes<W>(LoadVector(a + 32), LoadVector(b + 32));
  return ~(low | high << 32) & kFirstBytes;
}

inline void XorBlock(const std::byte* a, const std::byte* b, std::byte* target) {
  for (std::size_t offset = 0; offset < kDigestBlockSize; offset += 32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + offset),
                        _mm256_xor_si256(LoadVector(a + offset), LoadVector(b + offset)));
  }
}

#include "device/host/kernels-inl.h"

}  // namespace avx2

extern const Kernels kAvx2Kernels;
constinit const Kernels kAvx2Kernels = avx2::MakeKernels("avx2");

}  // namespace segue::host
#endif
