// SPDX-License-Identifier: Apache-2.0
//
// Names and drivers.
#include "device/cuda/named_device.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace segue::cuda {
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

Result<NamedDevice> FindNamedDevice(const std::string& name) {
  NamedDevice named;
  named.ordinal = OrdinalOf(name);
  if (named.ordinal < 0) {
    return Unsupported("no device '" + name + "': devices are cuda:0, cuda:1, ...");
  }
  const char* const library = std::getenv("SEGUE_CUDA_DRIVER");
  SEGUE_ASSIGN_OR_RETURN(named.driver, Driver::Load(library != nullptr ? library : kDriverLibrary));
  return named;
}

}  // namespace segue::cuda
