// SPDX-License-Identifier: Apache-2.0
//
// Fake device memory: pages that nobody may touch but operations of the device while they run, so
// that code of the host that follows a device address ends by a fault. Behind each allocation lies
// a canary up to the page's end, and then a page that is never there.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace fake_cuda {

class DeviceMemory {
 public:
  // 0 where there is none.
  std::uint64_t Allocate(std::size_t size) {
    const std::size_t reach = (size + kPage - 1) / kPage * kPage;
    void* const pages =
        mmap(nullptr, reach + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return 0;
    mprotect(pages, reach, PROT_READ | PROT_WRITE);
    std::memset(static_cast<char*>(pages) + size, kCanary, reach - size);
    mprotect(pages, reach, PROT_NONE);
    const auto address = reinterpret_cast<std::uint64_t>(pages);
    regions_[address] = {size, reach};
    bytes_ += size;
    if (bytes_ > peak_) peak_ = bytes_;
    return address;
  }

  bool Free(std::uint64_t address) {
    const auto found = regions_.find(address);
    if (found == regions_.end()) return false;
    CheckCanary(address, found->second);
    munmap(reinterpret_cast<void*>(address), found->second.reach + kPage);
    bytes_ -= found->second.size;
    regions_.erase(found);
    return true;
  }

  // Whether [address, address + size) lies in one allocation.
  bool Holds(std::uint64_t address, std::size_t size) const {
    auto found = regions_.upper_bound(address);
    if (found == regions_.begin()) return false;
    --found;
    return address - found->first <= found->second.size &&
           size <= found->second.size - (address - found->first);
  }

  // Calls `operation` with all memory there.
  template <typename Operation>
  void With(Operation operation) {
    Protect(PROT_READ | PROT_WRITE);
    operation();
    Protect(PROT_NONE);
  }

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak() const { return peak_; }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr unsigned char kCanary = 0xc5;
  struct Region {
    std::size_t size;
    std::size_t reach;
  };

  void Protect(int mode) {
    for (const auto& [address, region] : regions_) {
      mprotect(reinterpret_cast<void*>(address), region.reach, mode);
    }
  }
  static void CheckCanary(std::uint64_t address, const Region& region) {
    auto* const bytes = reinterpret_cast<unsigned char*>(address);
    mprotect(bytes, region.reach, PROT_READ);
    for (std::size_t i = region.size; i < region.reach; ++i) {
      if (bytes[i] == kCanary) continue;
      std::fputs("fake CUDA: something was written behind an allocation\n", stderr);
      std::abort();
    }
  }

  std::map<std::uint64_t, Region> regions_;
  std::uint64_t bytes_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace fake_cuda
