// SPDX-License-Identifier: Apache-2.0
//
// Loading, and which versions are taken.
#include "device/cuda/nvcomp_library.h"

#include <dlfcn.h>

namespace segue::cuda {
namespace {

constexpr const char* kNames[] = {"libnvcomp.so.6", "libnvcomp.so.5"};
// What the declarations were compared with: 5.1 to 5.3, and 6.0.
constexpr unsigned kVersionMin = 5100;
constexpr unsigned kMajorMax = 6;

std::string VersionText(unsigned version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 100) + "." +
         std::to_string(version % 100);
}

// The first of the names that is there.
void* Open(const std::string& library, std::string& reason) {
  const auto open = [&](const char* name) {
    // Never unloaded: it has kernels in the driver.
    void* const opened = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char* const error = opened == nullptr ? dlerror() : nullptr;
    if (error != nullptr && reason.empty()) reason = error;
    return opened;
  };
  if (!library.empty()) return open(library.c_str());
  for (const char* name : kNames) {
    if (void* const opened = open(name)) return opened;
  }
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<const NvcompLibrary>> NvcompLibrary::Load(const std::string& library) {
  const std::shared_ptr<NvcompLibrary> loaded(new NvcompLibrary);
  std::string reason;
  loaded->library_ = Open(library, reason);
  if (loaded->library_ == nullptr) return Unsupported("no nvCOMP: " + reason);
  SEGUE_RETURN_IF_ERROR(loaded->Find());
  return std::shared_ptr<const NvcompLibrary>(loaded);
}

NvcompLibrary::~NvcompLibrary() {
  if (library_ != nullptr) dlclose(library_);
}

std::string NvcompLibrary::version() const { return VersionText(version_); }

template <typename Function>
Status NvcompLibrary::FindFunction(const std::string& name, Function& function) const {
  function = reinterpret_cast<Function>(dlsym(library_, name.c_str()));
  if (function != nullptr) return {};
  return Unsupported("nvCOMP" + (version_ != 0 ? " " + version() : "") + " lacks " + name);
}

Status NvcompLibrary::Find() {
  nvcomp::GetProperties properties = nullptr;
  SEGUE_RETURN_IF_ERROR(FindFunction("nvcompGetProperties", properties));
  SEGUE_RETURN_IF_ERROR(FindFunction("nvcompGetStatusString", status_string_));
  nvcomp::Properties found = {};
  SEGUE_RETURN_IF_ERROR(Check(properties(&found), "nvcompGetProperties"));
  version_ = found.version;
  if (version_ < kVersionMin || version_ / 1000 > kMajorMax) {
    return Unsupported("nvCOMP " + version() + ": versions 5.1 to " + std::to_string(kMajorMax) +
                       " are known");
  }
  SEGUE_RETURN_IF_ERROR(FindCodec("nvcompBatchedSnappy", snappy_));
  return FindCodec("nvcompBatchedLZ4", lz4_);
}

Status NvcompLibrary::FindCodec(const std::string& prefix, Codec& codec) const {
  nvcomp::GetAlignments alignments = nullptr;
  SEGUE_RETURN_IF_ERROR(FindFunction(prefix + nvcomp::kAlignmentsName, alignments));
  SEGUE_RETURN_IF_ERROR(FindFunction(prefix + nvcomp::kDecompressName, codec.decompress));
  if (version_ / 1000 == 5) {
    SEGUE_RETURN_IF_ERROR(FindFunction(prefix + nvcomp::kTempSizeName5, codec.temp_size_5));
  } else {
    SEGUE_RETURN_IF_ERROR(FindFunction(prefix + nvcomp::kTempSizeName6, codec.temp_size_6));
  }
  return Check(alignments(options(), &codec.alignments), prefix + nvcomp::kAlignmentsName);
}

Result<std::uint64_t> NvcompLibrary::TempSize(const Codec& codec, std::size_t count,
                                              std::uint64_t size_max, std::uint64_t size,
                                              CUstream stream) const {
  std::size_t bytes = 0;
  const nvcomp::Code code =
      codec.temp_size_6 != nullptr
          ? codec.temp_size_6(count, size_max, options(), &bytes, size, stream)
          : codec.temp_size_5(count, size_max, options(), &bytes, size);
  SEGUE_RETURN_IF_ERROR(Check(code, "nvCOMP's size of temporary memory"));
  return std::uint64_t{bytes};
}

Status NvcompLibrary::Check(nvcomp::Code code, const std::string& call) const {
  if (code == nvcomp::kSuccess) return {};
  const char* const text = status_string_(code);
  return Internal(call + ": nvCOMP's code " + std::to_string(code) +
                  (text != nullptr ? std::string(", ") + text : ""));
}

}  // namespace segue::cuda
