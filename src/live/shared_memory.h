// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory: a POSIX shared memory object by its name, its locks and its mappings. What a
// segment is made of (docs/protocol.md, section 6); the one door to shm_open and fcntl locks.
//
// Locks are open file description locks on single bytes: the kernel drops them when the last
// process that holds the descriptor is gone, however it ended, in any PID namespace. They belong to
// the object of this class, not to the process: two objects of one process exclude each other.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

class SharedMemory {
 public:
  // New and empty; Unavailable when the name is taken. InvalidArgument for bad names, here and
  // below: 1 to 64 of [A-Za-z0-9._-], not beginning with '.'.
  static Result<SharedMemory> Create(const std::string& name);
  // NotFound when there is none.
  static Result<SharedMemory> Open(const std::string& name);
  // Success when there is none. Who has it open keeps what they have.
  static Status Remove(const std::string& name);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Gives the object `size` bytes with memory behind each, so that no later write can fail with
  // SIGBUS. ResourceExhausted where there is not that much.
  Status Allocate(std::uint64_t size);
  Result<std::uint64_t> Size() const;
  // Corruption when the object ends before.
  Status Read(std::uint64_t offset, MutableByteSpan target) const;
  // The name is gone, or another object has it.
  bool IsRemoved() const;

  // False when another holds it.
  Result<bool> TryLock(std::uint64_t byte);
  void Unlock(std::uint64_t byte);
  bool IsLockedByOther(std::uint64_t byte) const;

  // As messages name it: "segment 'x'".
  std::string Describe() const { return "segment '" + name_ + "'"; }
  int descriptor() const { return descriptor_; }

 private:
  SharedMemory(std::string name, int descriptor)
      : name_(std::move(name)), descriptor_(descriptor) {}

  std::string name_;
  int descriptor_ = -1;
};

// A range of an object in memory, at an address that huge pages can be used for. It outlives the
// object it was made from. Move-only.
class SharedMapping {
 public:
  enum class Mode { kReadOnly, kReadWrite };

  // `offset` and `size` lie in the object, `size` is not 0.
  static Result<SharedMapping> Map(const SharedMemory& object, std::uint64_t offset,
                                   std::uint64_t size, Mode mode);

  SharedMapping() = default;
  ~SharedMapping();
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  // Huge pages from `offset` on, where the kernel has them to give; never fails.
  void AdviseHugePages(std::uint64_t offset = 0);
  // The same for pages that are there already: they are moved, which takes a while.
  void CollapseToHugePages(std::uint64_t offset = 0);

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace segue
