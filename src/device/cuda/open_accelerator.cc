// SPDX-License-Identifier: Apache-2.0
//
// Accelerators and differs by name.
#include <cstdlib>
#include <utility>

#include "device/accelerator.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_differ.h"
#include "device/cuda/named_device.h"
#include "device/differ.h"

namespace segue {

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned threads,
                                                     const AcceleratorOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(cuda::NamedDevice named, cuda::FindNamedDevice(name));
  const char* const nvcomp = std::getenv("SEGUE_NVCOMP");
  return cuda::MakeCudaDevice(std::move(named.driver),
                              {.ordinal = named.ordinal,
                               .threads = threads,
                               .decoder = options.decoder,
                               .nvcomp_library = nvcomp != nullptr ? nvcomp : "",
                               .memory_max = options.memory_max,
                               .keeps_slots = options.keep_slots,
                               .keeps_batch = options.keep_batch});
}

Result<std::shared_ptr<Differ>> OpenDiffer(const std::string& name, const DifferOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(cuda::NamedDevice named, cuda::FindNamedDevice(name));
  return cuda::MakeCudaDiffer(std::move(named.driver), named.ordinal, options);
}

}  // namespace segue
