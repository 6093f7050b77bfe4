// SPDX-License-Identifier: Apache-2.0
//
// Machine: runs a kernel of program.h, block after block. Each lane has a place in the program of
// its own, as on GPUs since Volta: lanes that part go on in any order, and what is right in one
// order only is wrong. What no program may do is a fault: an address that is not aligned, shared
// memory beyond its end, a value used that was never written, lanes that wait for each other in
// different places. Memory that is not shared is this process's own.
#pragma once

#include <cstdint>
#include <span>

#include "ptx/program.h"

namespace ptx {

// In which order lanes that have parted, and warps of a block, go on.
struct Order {
  // 0: the lanes that are furthest behind first, warps one after the other. Others: at random.
  std::uint64_t seed = 0;
};

// What a run took. No time: a GPU's instructions are others, but near in number, and how many
// sectors a load or store touches is what its memory has to do.
struct Counts {
  std::uint64_t instructions = 0;  // Of warps, whether for one lane or for 32.
  std::uint64_t sectors = 0;       // Of 32 bytes, of each load and store of a warp.
};

// Runs until all lanes have returned. Fault: which instruction did what.
Counts Run(const Kernel& kernel, std::span<const std::uint64_t> arguments, unsigned blocks,
           unsigned threads, const Order& order = {});

}  // namespace ptx
