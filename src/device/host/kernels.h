// SPDX-License-Identifier: Apache-2.0
//
// Host kernels: the arithmetic of diff, preflight, apply and digest over one chunk in memory. One
// table of functions for each instruction set, chosen once at run time; the scalar table is the
// specification and every other equals it byte for byte. Pointers and counts in, sums out: no
// allocation, no threads, no errors beyond "these bytes are not valid".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/digest.h"

namespace segue::host {

// Whose bytes a chunk's are: tensor number and number of the first digest block in the tensor.
struct ChunkKey {
  std::uint64_t tensor = 0;
  std::uint64_t first_block = 0;
};

// Bytes that decoders may read (never write) past the end of `low`: whole-word loads.
inline constexpr std::size_t kStreamSlack = 8;

// One row of encoding `sparse`. Counts and sizes have been checked (CheckSparse); `low` has
// kStreamSlack readable bytes behind it. A plane that is null is constant.
struct SparseChunk {
  const std::byte* low = nullptr;
  const std::byte* high = nullptr;
  const std::byte* plane[8] = {};
  std::uint64_t constants = 0;
  std::uint32_t change_count = 0;
  std::uint32_t element_count = 0;
  unsigned low_bits = 0;
  unsigned width = 1;
};

struct SparseSums {
  Digest difference;          // Digest of new values minus digest of old ones.
  std::uint64_t touched = 0;  // Lane 0 of the old values; preflight only.
  bool valid = true;  // False: a position out of order or bounds, or a mask of 0; preflight only.
};

struct DiffSums {
  Digest before;              // Of the whole base chunk.
  Digest after;               // Of the whole target chunk; not set when `overflow`.
  std::uint64_t touched = 0;  // Lane 0 over the base values of the changed elements.
  std::uint32_t change_count = 0;
  bool overflow = false;  // More than the allowed changes: the lists are incomplete.
};

struct DenseSums {
  Digest before;
  Digest after;
};

struct Kernels {
  std::string_view name;

  // Digest of `size` bytes.
  Digest (*digest)(ChunkKey key, const std::byte* bytes, std::size_t size);

  // Finds the elements of `width` bytes that differ. `positions` and `values` (width bytes each:
  // base XOR target) have room for count_max + kDigestBlockSize / width entries.
  DiffSums (*diff_sparse)(ChunkKey key, const std::byte* base, const std::byte* target,
                          std::size_t size, unsigned width, std::uint32_t count_max,
                          std::uint32_t* positions, std::byte* values);

  // Writes base XOR target to `mask` and counts the elements that differ.
  DiffSums (*diff_dense)(ChunkKey key, const std::byte* base, const std::byte* target,
                         std::size_t size, unsigned width, std::byte* mask);

  // Checks a sparse row against the live bytes; writes nothing.
  SparseSums (*sparse_preflight)(ChunkKey key, const SparseChunk& chunk, const std::byte* live);
  // Applies a row that passed the preflight.
  SparseSums (*sparse_apply)(ChunkKey key, const SparseChunk& chunk, std::byte* live);

  // Digests of `live` and of `live` XOR `mask`; writes nothing.
  DenseSums (*xor_preflight)(ChunkKey key, const std::byte* live, const std::byte* mask,
                             std::size_t size);
  // live ^= mask; digest of the result.
  Digest (*xor_apply)(ChunkKey key, std::byte* live, const std::byte* mask, std::size_t size);

  // target = a XOR b.
  void (*xor_bytes)(const std::byte* a, const std::byte* b, std::byte* target, std::size_t size);

  // Byte p of element i goes to planes[p][i], and back. `planes` has `width` pointers; in the way
  // back a null one stands for a constant plane, whose byte is byte p of `constants`.
  void (*split_planes)(const std::byte* elements, std::size_t count, unsigned width,
                       std::byte* const* planes);
  void (*join_planes)(const std::byte* const* planes, std::size_t count, unsigned width,
                      std::uint64_t constants, std::byte* elements);
};

// The tables this processor can run, best last; the scalar one is always first.
std::span<const Kernels* const> AvailableKernels();

// The best available, or the one that the environment variable SEGUE_KERNELS names ("scalar",
// "avx2", "avx512"); a name that cannot run here ends the program with a sentence.
const Kernels& ActiveKernels();

}  // namespace segue::host
