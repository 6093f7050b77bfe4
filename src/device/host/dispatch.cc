// SPDX-License-Identifier: Apache-2.0
//
// Which kernels run: detection of what the processor and the operating system allow, and the
// choice, apart from each other. SEGUE_KERNELS forces one, so that tests cover them all.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "device/host/kernels.h"

namespace segue::host {

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

namespace {

std::vector<const Kernels*> Detect() {
  std::vector<const Kernels*> found = {&kScalarKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                    __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (!avx2) return found;
  found.push_back(&kAvx2Kernels);
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
    found.push_back(&kAvx512Kernels);
  }
#endif
  return found;
}

const Kernels& Choose() {
  const char* wanted = std::getenv("SEGUE_KERNELS");
  if (wanted == nullptr || *wanted == '\0') return *AvailableKernels().back();
  for (const Kernels* kernels : AvailableKernels()) {
    if (kernels->name == wanted) return *kernels;
  }
  std::fprintf(stderr, "SEGUE_KERNELS asks for '%s', which this processor cannot run\n", wanted);
  std::exit(2);
}

}  // namespace

std::span<const Kernels* const> AvailableKernels() {
  static const std::vector<const Kernels*> kernels = Detect();
  return kernels;
}

const Kernels& ActiveKernels() {
  static const Kernels& active = Choose();
  return active;
}

}  // namespace segue::host
