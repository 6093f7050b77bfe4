// SPDX-License-Identifier: Apache-2.0
//
// Program: compiled kernels as PTX, NVIDIA's assembly for a machine of threads in warps of 32 (PTX
// ISA 9.0), read into instructions that machine.h runs. With it tests run what the compiler made of
// kernels.cu, not only the cores that kernels.cu is made of. It knows the instructions that our
// kernels need, and refuses any other by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ptx {

inline constexpr unsigned kLaneCount = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffff;

// What is wrong with a program, or what it did that no GPU does.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One value of each lane: a register, or something that is read like one (a constant, a parameter
// of the kernel, a special register). Narrow types use the low bits.
struct Register {
  std::array<std::uint64_t, kLaneCount> value = {};
  std::uint32_t defined = 0;  // Lanes in which it has been written.
};

struct Registers;

enum class Step {
  kPlain,
  kBranch,
  kReturn,
  kCollective,  // Waits for all lanes that its mask names.
  kBarrier,     // Waits for all lanes of the block.
};

struct Instruction;

// What an instruction of this name does.
struct Operation {
  // In the lanes of a mask. Null for what the machine itself does.
  void (*run)(const Instruction& instruction, Registers& registers, std::uint32_t lanes) = nullptr;
  Step step = Step::kPlain;
  // Whether all that it reads must have been written: it reads or writes memory, or lanes of
  // others.
  bool demands = false;
  bool is_memory = false;  // Reads or writes memory that is not shared.
};

struct Instruction {
  const Operation* operation = nullptr;
  std::vector<std::uint32_t> to;    // Numbers of registers.
  std::vector<std::uint32_t> from;  // The same; of memory the address comes first.
  std::int64_t offset = 0;          // Added to the address.
  std::uint32_t target = 0;         // Of a branch: the number of an instruction.
  bool is_predicated = false;
  bool is_negated = false;
  std::uint32_t predicate = 0;
  std::uint32_t member_mask = 0;  // Of a collective: a register.
  std::string text = {};
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::uint32_t register_count = 0;
  std::vector<std::uint32_t> parameters;                           // Registers.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> constants;  // Register and value.
  std::map<std::string, std::uint32_t> special;                    // "%tid.x" and its register.
  std::size_t shared_size = 0;                                     // Bytes a block.
  std::uint64_t threads_max = 0;  // Of a block, as it was compiled for; 0: not said.
};

// Memory of a block, which holds nothing at first.
struct Shared {
  std::vector<std::byte> bytes;
  std::vector<std::uint8_t> written;  // By byte: 1, or 0.
};

// The state of a warp that instructions work on.
struct Registers {
  std::vector<Register> file;
  Shared* shared = nullptr;
};

// Kernels by name. Fault: what is not understood.
std::map<std::string, Kernel> Parse(const std::string& text);

}  // namespace ptx
