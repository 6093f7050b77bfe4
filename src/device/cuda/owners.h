// SPDX-License-Identifier: Apache-2.0
//
// Owners of what the driver gives: context, memory, streams, events, module. Each is made by a
// function that returns a Result and gives its thing back when it goes. All but the context need a
// ContextScope around their making and their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "device/cuda/driver.h"

namespace segue::cuda {

using DriverPointer = std::shared_ptr<const Driver>;

// A handle and the function that ends it.
template <typename Handle>
class Owned {
 public:
  using End = CUresult (*)(Handle);

  Owned() = default;
  Owned(DriverPointer driver, Handle handle, End end)
      : driver_(std::move(driver)), handle_(handle), end_(end) {}
  Owned(Owned&& other) noexcept
      : driver_(std::move(other.driver_)),
        handle_(std::exchange(other.handle_, {})),
        end_(std::exchange(other.end_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    std::swap(end_, other.end_);
    return *this;
  }
  // A failure to end has nobody to go to; the driver reports it again at the next call.
  ~Owned() {
    if (end_ != nullptr) end_(handle_);
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return end_ != nullptr; }

 private:
  DriverPointer driver_;
  Handle handle_ = {};
  End end_ = nullptr;
};

using Stream = Owned<CUstream>;
using Event = Owned<CUevent>;
using Module = Owned<CUmodule>;

// Memory of the device.
struct DeviceBuffer {
  Owned<CUdeviceptr> memory;
  std::uint64_t size = 0;
  std::shared_ptr<const void> charge = nullptr;  // Of a budget (staging_memory.h), or none.

  CUdeviceptr address() const { return memory.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(memory.get());
  }
};

// Memory of the host that the device copies from and to without a detour.
struct PinnedBuffer {
  Owned<void*> memory;
  std::uint64_t size = 0;
  std::shared_ptr<const void> charge = nullptr;

  std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
};

// The primary context of a device, which it shares with whoever else uses the device in this
// process (PyTorch, say).
class Context {
 public:
  static Result<std::shared_ptr<const Context>> Make(DriverPointer driver, int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DriverPointer& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  CUcontext get() const { return context_; }

 private:
  explicit Context(DriverPointer driver) : driver_(std::move(driver)) {}

  DriverPointer driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};
using ContextPointer = std::shared_ptr<const Context>;

// Makes the context the thread's own while it lives; then the one before is again. A stream that
// another thread captures meanwhile does not forbid what is done here (relaxed mode): nothing of it
// touches that stream. Waiting for all of the context is refused all the same.
class ContextScope {
 public:
  explicit ContextScope(const Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  const Status& status() const { return status_; }

 private:
  const Context& context_;
  Status status_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// InvalidArgument unless `size` bytes from `address` on are memory of the context's device, all of
// them, in one allocation or in several that adjoin. The caller has the context's scope.
Status CheckDeviceMemory(const Context& context, const std::byte* address, std::uint64_t size);

// The greatest priority runs first. The least one is that of every stream for which none was asked,
// an engine's among them: it gives way to no such stream, and shares the device with them.
enum class StreamPriority { kGreatest, kLeast };

Result<Stream> MakeStream(const DriverPointer& driver, StreamPriority priority);
Result<Event> MakeEvent(const DriverPointer& driver);
Result<Module> LoadModule(const DriverPointer& driver, const void* image);
// Size 0: empty.
Result<DeviceBuffer> AllocateDevice(const DriverPointer& driver, std::uint64_t size);
Result<PinnedBuffer> AllocatePinned(const DriverPointer& driver, std::uint64_t size);

}  // namespace segue::cuda
