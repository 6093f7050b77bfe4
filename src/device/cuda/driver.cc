// SPDX-License-Identifier: Apache-2.0
//
// Loading the driver, and its error codes as sentences.
#include "device/cuda/driver.h"

#include <dlfcn.h>

namespace segue::cuda {
namespace {

// The header's macros name the symbols; two steps so that they are expanded first.
#define SEGUE_CUDA_TEXT(name) #name
#define SEGUE_CUDA_SYMBOL(name) SEGUE_CUDA_TEXT(name)

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Status CheckDriverVersion(int version) {
  // A driver takes machine code of every toolkit of its own major version, and of older ones.
  constexpr int kVersionMin = CUDA_VERSION / 1000 * 1000;
  if (version >= kVersionMin) return {};
  return Unsupported(
      "the CUDA driver speaks version " + VersionText(version) + "; " + VersionText(kVersionMin) +
      " or newer is needed, as the kernels are built by " + VersionText(CUDA_VERSION));
}

Driver::~Driver() {
  if (library_ != nullptr) dlclose(library_);
}

Status Driver::Find() {
#define SEGUE_CUDA_FIND(name) \
  name = reinterpret_cast<decltype(name)>(dlsym(library_, SEGUE_CUDA_SYMBOL(name)));
  SEGUE_CUDA_FUNCTIONS(SEGUE_CUDA_FIND)
  SEGUE_CUDA_ENGINE_FUNCTIONS(SEGUE_CUDA_FIND)
#undef SEGUE_CUDA_FIND
  const char* missing = nullptr;
#define SEGUE_CUDA_MISS(name) \
  if (name == nullptr) missing = SEGUE_CUDA_SYMBOL(name);
  SEGUE_CUDA_ENGINE_FUNCTIONS(SEGUE_CUDA_MISS)
  has_engine_functions_ = missing == nullptr;
  missing = nullptr;
  SEGUE_CUDA_FUNCTIONS(SEGUE_CUDA_MISS)
#undef SEGUE_CUDA_MISS
  if (missing == nullptr) return {};
  return Unsupported(std::string("the CUDA driver lacks ") + missing + "; it is too old");
}

Result<std::shared_ptr<const Driver>> Driver::Load(const std::string& library) {
  const std::shared_ptr<Driver> driver(new Driver);
  // Never unloaded: the driver has threads and exit handlers of its own.
  driver->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (driver->library_ == nullptr) {
    const char* const reason = dlerror();
    return Unsupported(std::string("no CUDA driver: ") + (reason != nullptr ? reason : library));
  }
  SEGUE_RETURN_IF_ERROR(driver->Find());
  int version = 0;
  int count = 0;
  for (const Status& status : {driver->Check(driver->cuInit(0), "cuInit"),
                               driver->Check(driver->cuDriverGetVersion(&version), "version"),
                               driver->Check(driver->cuDeviceGetCount(&count), "count")}) {
    if (!status.ok()) return Unsupported("no CUDA device: " + status.message());
  }
  SEGUE_RETURN_IF_ERROR(CheckDriverVersion(version));
  if (count == 0) return Unsupported("no CUDA device: the driver knows none");
  return std::shared_ptr<const Driver>(driver);
}

Status Driver::Check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string message = std::string(call) + ": " +
                        (name != nullptr ? name : "error " + std::to_string(int{result})) +
                        (text != nullptr ? std::string(", ") + text : "");
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return ResourceExhausted(std::move(message));
  return Internal(std::move(message));
}

}  // namespace segue::cuda
