// SPDX-License-Identifier: Apache-2.0
//
// Fake nvCOMP: what tests ask of the library that takes the real one's place (fake_nvcomp.cc).
// Found by name in the loaded library, as nvCOMP's own functions are.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

enum SegueFakeNvcompFault {
  kFakeNvcompRight,
  kFakeNvcompShort,      // Half of the block, and says so.
  kFakeNvcompLies,       // All of it, with one wrong bit.
  kFakeNvcompWrongSize,  // All of it, and states one byte more.
  kFakeNvcompWrongCode,  // All of it, and states a failure.
  kFakeNvcompSilent,     // Nothing, and says nothing.
  kFakeNvcompBehind,     // All of it, and one byte more.
  kFakeNvcompRefuses,    // The call fails.
};
// One block is wrong, of the call after `skip` right ones from now on. Until the next reset or
// call.
using SegueFakeNvcompGoesWrong = void (*)(SegueFakeNvcompFault fault, unsigned skip,
                                          std::size_t block);
// What it says its version is: 6000 until then. With 5 it has the functions of 5.
using SegueFakeNvcompVersion = void (*)(unsigned version);
// The alignment that it wants for everything, and bytes of temporary memory for each chunk.
using SegueFakeNvcompWants = void (*)(std::size_t alignment, std::size_t temporary);
// Calls that decompress, until now.
using SegueFakeNvcompCalls = std::uint64_t (*)();
using SegueFakeNvcompReset = void (*)();
}

inline constexpr const char* kFakeNvcompGoesWrong = "segue_fake_nvcomp_goes_wrong";
inline constexpr const char* kFakeNvcompVersion = "segue_fake_nvcomp_version";
inline constexpr const char* kFakeNvcompWants = "segue_fake_nvcomp_wants";
inline constexpr const char* kFakeNvcompCalls = "segue_fake_nvcomp_calls";
inline constexpr const char* kFakeNvcompReset = "segue_fake_nvcomp_reset";
