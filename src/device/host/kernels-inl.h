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

#include "device/host/kernels_common-inl.h"
#include "device/host/kernels_dense-inl.h"
#include "device/host/kernels_sparse-inl.h"

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
