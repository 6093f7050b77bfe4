// SPDX-License-Identifier: Apache-2.0
//
// Taking turns, and packing.
#include "device/cuda/slots.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace segue::cuda {

Result<Slots> Slots::Make(const StagingMemory& memory, std::uint64_t size) {
  Slots slots;
  slots.driver_ = memory.driver();
  for (unsigned i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(slots.buffers_[i], memory.Host(size));
    SEGUE_ASSIGN_OR_RETURN(slots.done_[i], MakeEvent(memory.driver()));
  }
  return slots;
}

Result<std::byte*> Slots::Next() {
  current_ ^= 1;
  if (in_use_[current_]) {
    in_use_[current_] = false;
    SEGUE_CUDA_TRY(driver_, cuEventSynchronize, done_[current_].get());
  }
  return buffers_[current_].data();
}

Status Slots::Release(CUstream stream) {
  SEGUE_CUDA_TRY(driver_, cuEventRecord, done_[current_].get(), stream);
  in_use_[current_] = true;
  return {};
}

Result<CUdeviceptr> Uploader::Append(const void* source, std::uint64_t size,
                                     std::uint64_t alignment) {
  static constexpr std::byte kPadding[256] = {};
  const std::uint64_t place = sent_ + filled_;
  const std::uint64_t padding = DivideUp(place, alignment) * alignment - place;
  SEGUE_RETURN_IF_ERROR(Write(kPadding, padding));
  SEGUE_RETURN_IF_ERROR(Write(static_cast<const std::byte*>(source), size));
  return target_ + place + padding;
}

Status Uploader::Write(const std::byte* source, std::uint64_t size) {
  while (size != 0) {
    if (slot_ == nullptr) {
      SEGUE_ASSIGN_OR_RETURN(slot_, slots_.Next());
    }
    const std::uint64_t part = std::min(size, slots_.size() - filled_);
    std::memcpy(slot_ + filled_, source, part);
    filled_ += part;
    source += part;
    size -= part;
    if (filled_ == slots_.size()) SEGUE_RETURN_IF_ERROR(Send());
  }
  return {};
}

Status Uploader::Send() {
  SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, target_ + sent_, slot_, filled_, stream_);
  SEGUE_RETURN_IF_ERROR(slots_.Release(stream_));
  sent_ += filled_;
  filled_ = 0;
  slot_ = nullptr;
  return {};
}

Status Uploader::Finish() { return filled_ != 0 ? Send() : Status(); }

}  // namespace segue::cuda
