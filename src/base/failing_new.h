// SPDX-License-Identifier: Apache-2.0
//
// Failing new: memory that runs out where a test says so. One source of a test program includes it,
// since it replaces the program's operator new; what must hold: without a NewFailsAfter nothing is
// different.
#pragma once

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "base/allocated.h"

namespace segue::test {

inline constexpr long kNewNeverFails = std::numeric_limits<long>::max() / 2;
inline std::atomic<long> new_calls_left{kNewNeverFails};

// While it lives: so many allocations succeed, in all threads together, and then none.
class NewFailsAfter {
 public:
  explicit NewFailsAfter(long allocations) { new_calls_left = allocations; }
  ~NewFailsAfter() { new_calls_left = kNewNeverFails; }
  NewFailsAfter(const NewFailsAfter&) = delete;
  NewFailsAfter& operator=(const NewFailsAfter&) = delete;
  // Whether one has failed.
  static bool has_failed() { return new_calls_left < 0; }
};

// The count orders nothing between threads: ThreadSanitizer would see no race across an allocation.
inline void* NewOrNull(std::size_t size, std::size_t alignment) noexcept {
  if (new_calls_left.fetch_sub(1, std::memory_order_relaxed) <= 0) return nullptr;
  if (alignment == 0) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

inline void* NewOrFail(std::size_t size, std::size_t alignment) {
  return Allocated(NewOrNull(size, alignment));
}

}  // namespace segue::test

// None is inlined: of a pair of which it sees one inside, GCC takes the other for the wrong one.
#define SEGUE_NO_INLINE [[gnu::noinline]]
SEGUE_NO_INLINE void* operator new(std::size_t size) { return segue::test::NewOrFail(size, 0); }
SEGUE_NO_INLINE void* operator new(std::size_t size, std::align_val_t alignment) {
  return segue::test::NewOrFail(size, static_cast<std::size_t>(alignment));
}
SEGUE_NO_INLINE void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return segue::test::NewOrNull(size, 0);
}
SEGUE_NO_INLINE void* operator new(std::size_t size, std::align_val_t alignment,
                                   const std::nothrow_t&) noexcept {
  return segue::test::NewOrNull(size, static_cast<std::size_t>(alignment));
}
SEGUE_NO_INLINE void operator delete(void* made) noexcept { std::free(made); }
SEGUE_NO_INLINE void operator delete(void* made, std::size_t) noexcept { std::free(made); }
SEGUE_NO_INLINE void operator delete(void* made, std::align_val_t) noexcept { std::free(made); }
SEGUE_NO_INLINE void operator delete(void* made, std::size_t, std::align_val_t) noexcept {
  std::free(made);
}
#undef SEGUE_NO_INLINE
