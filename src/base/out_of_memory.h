// SPDX-License-Identifier: Apache-2.0
//
// Out of memory: nothing in Segue throws, but the standard library does when memory has run out.
// Where that must not pass (a thread's end, weights that are being changed) it becomes a status.
#pragma once

#include <new>
#include <utility>

#include "segue/status.h"

namespace segue {

// Made once, so that handing it out needs no memory.
inline const Status& OutOfMemory() {
  static const Status status = ResourceExhausted("memory: no more could be allocated");
  return status;
}

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
