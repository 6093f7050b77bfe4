// SPDX-License-Identifier: Apache-2.0
//
// Out of memory: nothing in Segue throws, but the standard library does when memory has run out.
// Where that must not pass (a thread's end, weights that are being changed) it becomes a status.
#pragma once

#include <new>
#include <utility>

#include "segue/status.h"

namespace segue {

namespace internal {
// Made before main(): where it is wanted there is no memory for it.
inline const Status out_of_memory = ResourceExhausted("memory: no more could be allocated");
}  // namespace internal

inline const Status& OutOfMemory() { return internal::out_of_memory; }

// What call() returns, a Status or a Result; OutOfMemory() where it ran out of memory.
template <typename Call>
auto CatchOutOfMemory(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

}  // namespace segue
