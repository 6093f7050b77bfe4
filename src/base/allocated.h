// SPDX-License-Identifier: Apache-2.0
//
// Allocated: objects that C libraries make are null when memory has run out. They then end as the
// standard library's own allocations do, so that one place turns both into a status.
#pragma once

#include <new>

namespace segue {

// `made`, unless it is null: then bad_alloc, as from `new` (base/out_of_memory.h).
template <typename T>
T* Allocated(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace segue
