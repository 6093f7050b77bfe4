// SPDX-License-Identifier: Apache-2.0
//
// Accelerators and differs by name: "cuda:N", through the driver of the machine, or the one that
// SEGUE_CUDA_DRIVER names (tests have theirs).
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "device/accelerator.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_differ.h"
#include "device/differ.h"

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

struct Named {
  std::shared_ptr<const cuda::Driver> driver;
  int ordinal = 0;
};

Result<Named> OpenNamed(const std::string& name) {
  Named named;
  named.ordinal = OrdinalOf(name);
  if (named.ordinal < 0) {
    return Unsupported("no device '" + name + "': devices are cuda:0, cuda:1, ...");
  }
  const char* const library = std::getenv("SEGUE_CUDA_DRIVER");
  SEGUE_ASSIGN_OR_RETURN(named.driver,
                         cuda::Driver::Load(library != nullptr ? library : cuda::kDriverLibrary));
  return named;
}

}  // namespace

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(Named named, OpenNamed(name));
  return cuda::MakeCudaDevice(std::move(named.driver),
                              {.ordinal = named.ordinal, .threads = threads});
}

Result<std::shared_ptr<Differ>> OpenDiffer(const std::string& name, const DifferOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(Named named, OpenNamed(name));
  return cuda::MakeCudaDiffer(std::move(named.driver), named.ordinal, options);
}

}  // namespace segue
