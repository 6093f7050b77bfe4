// SPDX-License-Identifier: Apache-2.0
//
// Scalar kernels: the specification, built for every processor.
#include "device/host/kernels.h"

namespace segue::host {
namespace scalar {

inline void BlockSums(const std::byte* block, std::uint64_t sums[2]) {
  std::uint64_t sum0 = 0;
  std::uint64_t sum1 = 0;
  for (std::size_t i = 0; i < kDigestBlockWords; ++i) {
    std::uint32_t word;
    __builtin_memcpy(&word, block + 4 * i, 4);
    sum0 += std::uint64_t{word} * kDigestWordKeys[0][i];
    sum1 += std::uint64_t{word} * kDigestWordKeys[1][i];
  }
  sums[0] = sum0;
  sums[1] = sum1;
}

template <unsigned W>
inline std::uint64_t DifferingElements(const std::byte* a, const std::byte* b) {
  std::uint64_t result = 0;
  for (unsigned offset = 0; offset < 64; offset += 8) {
    std::uint64_t left;
    std::uint64_t right;
    __builtin_memcpy(&left, a + offset, 8);
    __builtin_memcpy(&right, b + offset, 8);
    const std::uint64_t mask = left ^ right;
    if (mask == 0) continue;
    for (unsigned k = 0; k < 8; k += W) {
      const std::uint64_t element =
          W == 8 ? mask : (mask >> (8 * k)) & ((1ull << (8 * (W % 8))) - 1);
      if (element != 0) result |= 1ull << (offset + k);
    }
  }
  return result;
}

inline void XorBlock(const std::byte* a, const std::byte* b, std::byte* target) {
  for (std::size_t offset = 0; offset < kDigestBlockSize; offset += 8) {
    std::uint64_t left;
    std::uint64_t right;
    __builtin_memcpy(&left, a + offset, 8);
    __builtin_memcpy(&right, b + offset, 8);
    left ^= right;
    __builtin_memcpy(target + offset, &left, 8);
  }
}

#include "device/host/kernels-inl.h"

}  // namespace scalar

extern const Kernels kScalarKernels;
constinit const Kernels kScalarKernels = scalar::MakeKernels("scalar");

}  // namespace segue::host
