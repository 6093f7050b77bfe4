// SPDX-License-Identifier: Apache-2.0
//
// Accelerators by name: "cuda:N", through the driver of the machine, or the one that
// SEGUE_CUDA_DRIVER names (tests have theirs).
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "device/accelerator.h"
#include "device/cuda/cuda_device.h"

namespace segue {
namespace {

constexpr std::string_view kPrefix = "cuda";

// The ordinal, or -1.
int OrdinalOf(std::string_view name) {
  if (name == kPrefix) return 0;
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + 2 || name[kPrefix.size()] != ':')
    return -1;
  int ordinal = -1;
  const std::string_view digits = name.substr(kPrefix.size() + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  return error == std::errc() && end == digits.data() + digits.size() ? ordinal : -1;
}

}  // namespace

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned threads) {
  const int ordinal = OrdinalOf(name);
  if (ordinal < 0) return Unsupported("no device '" + name + "': devices are cuda:0, cuda:1, ...");
  const char* const library = std::getenv("SEGUE_CUDA_DRIVER");
  std::shared_ptr<const cuda::Driver> driver;
  SEGUE_ASSIGN_OR_RETURN(driver,
                         cuda::Driver::Load(library != nullptr ? library : cuda::kDriverLibrary));
  return cuda::MakeCudaDevice(std::move(driver), {.ordinal = ordinal, .threads = threads});
}

}  // namespace segue
