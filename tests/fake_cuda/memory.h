// SPDX-License-Identifier: Apache-2.0
//
// Fake device memory: pages that nobody may touch but operations of the device while they run, so
// that code of the host that follows a device address ends by a fault. Behind each allocation lies
// a canary up to the page's end, and then a page that is never there.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace fake_cuda {

class DeviceMemory {
 public:
  // 0 where there is none.
  std::uint64_t Allocate(std::size_t size, int device) {
    const std::size_t reach = (size + kPage - 1) / kPage * kPage;
    void* const pages =
        mmap(nullptr, reach + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return 0;
    mprotect(pages, reach, PROT_READ | PROT_WRITE);
    std::memset(static_cast<char*>(pages) + size, kCanary, reach - size);
    mprotect(pages, reach, PROT_NONE);
    const auto address = reinterpret_cast<std::uint64_t>(pages);
    regions_[address] = {.size = size, .reach = reach, .device = device};
    bytes_ += size;
    if (bytes_ > peak_) peak_ = bytes_;
    return address;
  }

  bool Free(std::uint64_t address) {
    const auto found = regions_.find(address);
    if (found == regions_.end() || found->second.mappings != 0) return false;
    CheckCanary(address, found->second);
    if (found->second.file >= 0) close(found->second.file);
    munmap(reinterpret_cast<void*>(address), found->second.reach + kPage);
    bytes_ -= found->second.size;
    regions_.erase(found);
    return true;
  }

  // Whether [address, address + size) lies in one allocation.
  bool Holds(std::uint64_t address, std::size_t size) const {
    const auto [base, allocated] = Find(address);
    return base != 0 && size <= allocated - (address - base);
  }

  // Address and size of the allocation that `address` is in, or at the end of; 0 for none.
  std::pair<std::uint64_t, std::size_t> Find(std::uint64_t address) const {
    auto found = regions_.upper_bound(address);
    if (found == regions_.begin()) return {};
    --found;
    if (address - found->first > found->second.size) return {};
    return {found->first, found->second.size};
  }

  // The device that has the allocation `address` is in.
  int DeviceOf(std::uint64_t address) const {
    const auto found = regions_.find(Find(address).first);
    return found != regions_.end() ? found->second.device : -1;
  }

  // A descriptor of the allocation's pages, through which another process maps them. -1 for none.
  int Share(std::uint64_t address) {
    const auto found = regions_.find(address);
    if (found == regions_.end()) return -1;
    Region& region = found->second;
    if (region.file >= 0) return region.file;
    region.file = memfd_create("fake CUDA", MFD_CLOEXEC);
    auto* const pages = reinterpret_cast<char*>(address);
    mprotect(pages, region.reach, PROT_READ);
    for (std::size_t done = 0; done < region.reach;) {
      const auto written = write(region.file, pages + done, region.reach - done);
      if (written <= 0) return -1;
      done += static_cast<std::size_t>(written);
    }
    (void)mmap(pages, region.reach, PROT_NONE, MAP_SHARED | MAP_FIXED, region.file, 0);
    return region.file;
  }

  // Pages that process `owner` shares, once however often they are mapped. 0 where there are none.
  // The range that they are in begins a page before them, as a driver's may.
  std::uint64_t Map(int owner, int file, std::size_t size, int device) {
    for (auto& [address, region] : regions_) {
      if (region.mappings == 0 || region.owner != std::pair(owner, file)) continue;
      ++region.mappings;
      return address + kPage;
    }
    const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(file);
    const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (opened < 0) return 0;
    const std::size_t reach = (size + kPage - 1) / kPage * kPage;
    auto* const pages =
        static_cast<char*>(mmap(nullptr, kPage + reach + kPage, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    (void)mmap(pages + kPage, reach, PROT_NONE, MAP_SHARED | MAP_FIXED, opened, 0);
    close(opened);
    const auto address = reinterpret_cast<std::uint64_t>(pages);
    regions_[address] = {.size = kPage + size,
                         .reach = kPage + reach,
                         .device = device,
                         .mappings = 1,
                         .owner = {owner, file}};
    return address + kPage;
  }

  bool Unmap(std::uint64_t address) {
    const auto found = regions_.find(address - kPage);
    if (found == regions_.end() || found->second.mappings == 0) return false;
    if (--found->second.mappings != 0) return true;
    CheckCanary(found->first, found->second);
    munmap(reinterpret_cast<void*>(found->first), found->second.reach + kPage);
    regions_.erase(found);
    return true;
  }
  std::uint64_t mappings() const {
    std::uint64_t count = 0;
    for (const auto& [address, region] : regions_) count += region.mappings;
    return count;
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
    std::size_t size = 0;
    std::size_t reach = 0;
    int device = 0;
    int file = -1;                       // Of an allocation that is shared.
    unsigned mappings = 0;               // Of another process's allocation,
    std::pair<int, int> owner = {0, 0};  // that process and its descriptor.
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
