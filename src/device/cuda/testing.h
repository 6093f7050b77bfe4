// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the CUDA device share: the fake driver, loaded and in the end held to have got
// everything back, and live bytes in its memory.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "device/cuda/owners.h"
#include "fake_cuda/fake_cuda.h"
#include "fake_nvcomp/fake_nvcomp.h"

namespace segue::cuda {

// Everything that fails in a test is a failure of the test.
template <typename T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return std::move(result).value();
}

class FakeDriver {
 public:
  FakeDriver() : library_(dlopen(SEGUE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    driver = Must(Driver::Load(SEGUE_FAKE_CUDA));
  }
  ~FakeDriver() {
    Find<SegueFakeReset>(kFakeReset)();
    driver.reset();
    dlclose(library_);
  }
  void Fail(const char* symbol, unsigned skip, CUresult result = CUDA_ERROR_UNKNOWN) {
    Find<SegueFakeFail>(kFakeFail)(symbol, skip, result);
  }
  void SetDevices(int count) { Find<SegueFakeDevices>(kFakeDevices)(count); }
  void Limit(std::uint64_t device_bytes, std::uint64_t pinned_bytes = ~std::uint64_t{0}) {
    Find<SegueFakeLimit>(kFakeLimit)(device_bytes, pinned_bytes);
  }
  // From now on there is an engine, for blocks of up to `size_max` bytes.
  void SetEngine(std::uint64_t size_max = 4 << 20, int host_node = 3,
                 unsigned algorithms = CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY |
                                       CU_MEM_DECOMPRESS_ALGORITHM_LZ4) {
    Find<SegueFakeEngine>(kFakeEngine)(algorithms, size_max, host_node);
  }
  // From now on another thread captures a stream, or none does.
  void Capture(bool on) { Find<SegueFakeCapture>(kFakeCapture)(on ? 1 : 0); }
  void EngineGoesWrong(SegueFakeEngineFault fault, unsigned skip = 0, std::size_t block = 0) {
    const auto before = static_cast<unsigned>(Count().decompressions);
    Find<SegueFakeEngineGoesWrong>(kFakeEngineGoesWrong)(fault, before + skip, block);
  }
  // `call` must live until the next call of `symbol`.
  template <typename Call>
  void Hook(const char* symbol, Call& call) {
    Find<SegueFakeHook>(kFakeHook)(
        symbol, [](void* context) { (*static_cast<Call*>(context))(); }, &call);
  }
  SegueFakeCounts Count() { return Find<SegueFakeCount>(kFakeCount)(); }

  DriverPointer driver;

 private:
  template <typename F>
  F Find(const char* name) {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_;
};

// The fake nvCOMP, as it was after loading when this goes.
class FakeNvcomp {
 public:
  FakeNvcomp() : library_(dlopen(SEGUE_FAKE_NVCOMP, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~FakeNvcomp() {
    Find<SegueFakeNvcompReset>(kFakeNvcompReset)();
    dlclose(library_);
  }
  FakeNvcomp(const FakeNvcomp&) = delete;
  FakeNvcomp& operator=(const FakeNvcomp&) = delete;

  void GoesWrong(SegueFakeNvcompFault fault, unsigned skip = 0, std::size_t block = 0) {
    Find<SegueFakeNvcompGoesWrong>(kFakeNvcompGoesWrong)(fault, skip, block);
  }
  void SetVersion(unsigned version) { Find<SegueFakeNvcompVersion>(kFakeNvcompVersion)(version); }
  void Wants(std::size_t alignment, std::size_t temporary) {
    Find<SegueFakeNvcompWants>(kFakeNvcompWants)(alignment, temporary);
  }
  std::uint64_t Calls() { return Find<SegueFakeNvcompCalls>(kFakeNvcompCalls)(); }

 private:
  template <typename F>
  F Find(const char* name) {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_;
};

// A device's context, current in this thread while it lives: for tests that use what is below the
// devices. Those have to see to their context themselves, so tests of them do without.
class InContext {
 public:
  explicit InContext(const DriverPointer& driver, int ordinal = 0)
      : context_(Must(Context::Make(driver, ordinal))), scope_(*context_) {
    EXPECT_TRUE(scope_.status().ok()) << scope_.status().ToString();
  }

 private:
  ContextPointer context_;
  ContextScope scope_;
};

// Live bytes in device memory, which only copies reach.
class DeviceBytes {
 public:
  DeviceBytes(const DriverPointer& driver, ByteSpan bytes, int ordinal = 0)
      : context_(Must(Context::Make(driver, ordinal))) {
    const ContextScope scope(*context_);
    stream_ = Must(MakeStream(driver, StreamPriority::kGreatest));
    buffer_ = Must(AllocateDevice(driver, bytes.size()));
    Write(bytes);
  }
  ~DeviceBytes() {
    const ContextScope scope(*context_);
    stream_ = {};
    buffer_ = {};
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void Write(ByteSpan bytes) const {
    const ContextScope scope(*context_);
    const Driver& driver = *context_->driver();
    EXPECT_EQ(driver.cuMemcpyHtoDAsync(address(), bytes.data(), bytes.size(), stream_.get()),
              CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  }
  CUdeviceptr address() const { return buffer_.address(); }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address()); }
  ByteVector Read() const {
    const ContextScope scope(*context_);
    ByteVector bytes(buffer_.size);
    const Driver& driver = *context_->driver();
    EXPECT_EQ(driver.cuMemcpyDtoHAsync(bytes.data(), address(), bytes.size(), stream_.get()),
              CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
    return bytes;
  }

 private:
  ContextPointer context_;
  Stream stream_;
  DeviceBuffer buffer_;
};

}  // namespace segue::cuda
