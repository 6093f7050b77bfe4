// SPDX-License-Identifier: Apache-2.0
//
// SEGUE_CHECK: our own bugs end the program, in every build. Input from outside never reaches a
// check: it gets a Status. SEGUE_DCHECK is for hot loops and is compiled out of release builds.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SEGUE_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#ifdef NDEBUG
#define SEGUE_DCHECK(condition) ((void)0)
#else
#define SEGUE_DCHECK(condition) SEGUE_CHECK(condition)
#endif
