// SPDX-License-Identifier: Apache-2.0
//
// nvCOMP library: NVIDIA's decoders for multiprocessors, found at run time where they are
// installed, and never needed. Knows names, versions and codes, nothing of chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/nvcomp_abi.h"
#include "segue/status.h"

namespace segue::cuda {

class NvcompLibrary {
 public:
  struct Codec {
    nvcomp::Alignments alignments = {};
    nvcomp::GetTempSize5 temp_size_5 = nullptr;
    nvcomp::GetTempSize6 temp_size_6 = nullptr;
    nvcomp::Decompress decompress = nullptr;
  };

  // Empty: by the names that the dynamic linker knows. Unsupported: there is none, or it is of a
  // version that is not known here, or lacks a function.
  static Result<std::shared_ptr<const NvcompLibrary>> Load(const std::string& library);
  ~NvcompLibrary();
  NvcompLibrary(const NvcompLibrary&) = delete;
  NvcompLibrary& operator=(const NvcompLibrary&) = delete;

  // On multiprocessors.
  static nvcomp::DecompressOptions options() { return {nvcomp::kBackendCuda, {}}; }
  std::string version() const;
  const Codec& snappy() const { return snappy_; }
  const Codec& lz4() const { return lz4_; }
  // Bytes that Decompress needs besides, aligned as `alignments` says.
  Result<std::uint64_t> TempSize(const Codec& codec, std::size_t count, std::uint64_t size_max,
                                 std::uint64_t size, CUstream stream) const;
  // OK, or what `call` ended with (Internal).
  Status Check(nvcomp::Code code, const std::string& call) const;

 private:
  NvcompLibrary() = default;
  Status Find();
  Status FindCodec(const std::string& prefix, Codec& codec) const;
  template <typename Function>
  Status FindFunction(const std::string& name, Function& function) const;

  void* library_ = nullptr;
  unsigned version_ = 0;
  nvcomp::GetStatusString status_string_ = nullptr;
  Codec snappy_;
  Codec lz4_;
};

}  // namespace segue::cuda
