// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 kernels (F, BW, VL, DQ: Skylake-X, Zen 4 and newer). Compiled with their own instruction
// set; called only after detection (dispatch.cc).
#include "device/host/kernels.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__)
#include <immintrin.h>

namespace segue::host {
namespace avx512 {

inline __m512i LoadVector(const void* source) { return _mm512_loadu_si512(source); }

// Not the header's own reduction, which adds signed numbers that overflow.
inline std::uint64_t AddLanes(__m512i v) {
  const __m256i half = _mm256_add_epi64(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  const __m128i pair =
      _mm_add_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(pair)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(pair, 1));
}

inline void BlockSums(const std::byte* block, std::uint64_t sums[2]) {
  __m512i even0 = _mm512_setzero_si512();
  __m512i odd0 = even0;
  __m512i even1 = even0;
  __m512i odd1 = even0;
  for (std::size_t i = 0; i < kDigestBlockWords; i += 16) {
    const __m512i words = LoadVector(block + 4 * i);
    const __m512i words_odd = _mm512_srli_epi64(words, 32);
    const __m512i keys0 = LoadVector(&kDigestWordKeys[0][i]);
    const __m512i keys1 = LoadVector(&kDigestWordKeys[1][i]);
    even0 = _mm512_add_epi64(even0, _mm512_mul_epu32(words, keys0));
    odd0 = _mm512_add_epi64(odd0, _mm512_mul_epu32(words_odd, _mm512_srli_epi64(keys0, 32)));
    even1 = _mm512_add_epi64(even1, _mm512_mul_epu32(words, keys1));
    odd1 = _mm512_add_epi64(odd1, _mm512_mul_epu32(words_odd, _mm512_srli_epi64(keys1, 32)));
  }
  sums[0] = AddLanes(_mm512_add_epi64(even0, odd0));
  sums[1] = AddLanes(_mm512_add_epi64(even1, odd1));
}

template <unsigned W>
inline std::uint64_t DifferingElements(const std::byte* a, const std::byte* b) {
  const __m512i left = LoadVector(a);
  const __m512i right = LoadVector(b);
  if constexpr (W == 1) return _mm512_cmpneq_epu8_mask(left, right);
  // One mask bit an element: spread to the place of its first byte.
  if constexpr (W == 2) {
    return _pdep_u64(_mm512_cmpneq_epu16_mask(left, right), 0x5555555555555555ull);
  }
  if constexpr (W == 4) {
    return _pdep_u64(_mm512_cmpneq_epu32_mask(left, right), 0x1111111111111111ull);
  }
  return _pdep_u64(_mm512_cmpneq_epu64_mask(left, right), 0x0101010101010101ull);
}

inline void XorBlock(const std::byte* a, const std::byte* b, std::byte* target) {
  for (std::size_t offset = 0; offset < kDigestBlockSize; offset += 64) {
    _mm512_storeu_si512(target + offset,
                        _mm512_xor_si512(LoadVector(a + offset), LoadVector(b + offset)));
  }
}

#include "device/host/kernels-inl.h"

}  // namespace avx512

extern const Kernels kAvx512Kernels;
constinit const Kernels kAvx512Kernels = avx512::MakeKernels("avx512");

}  // namespace segue::host
#endif
