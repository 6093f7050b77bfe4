// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory: shm_open, posix_fallocate, F_OFD_* locks and mmap, with errors as Status.
#include "live/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/file.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older kernels refuse it.
#endif

namespace segue {
namespace {

constexpr std::size_t kNameSizeMax = 64;
constexpr std::uint64_t kHugePageSize = 2ull << 20;

bool IsNameCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// Bad names are not shown: they may hold anything.
Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kNameSizeMax && name.front() != '.' &&
      std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return {};
  }
  return InvalidArgument("a segment's name is 1 to " + std::to_string(kNameSizeMax) +
                         " of [A-Za-z0-9._-] and does not begin with '.'; this one has " +
                         std::to_string(name.size()) + " bytes and is not so");
}

std::string ObjectName(const std::string& name) { return "/segue-" + name; }

struct flock LockOf(std::uint64_t byte, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<SharedMemory> SharedMemory::Create(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckName(name));
  const int descriptor =
      ::shm_open(ObjectName(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return ErrnoStatus("create the segment", name);
  return SharedMemory(name, descriptor);
}

Result<SharedMemory> SharedMemory::Open(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckName(name));
  const int descriptor =
      ::shm_open(ObjectName(name).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK, 0600);
  if (descriptor < 0) return ErrnoStatus("open the segment", name);
  return SharedMemory(name, descriptor);
}

Status SharedMemory::Remove(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckName(name));
  if (::shm_unlink(ObjectName(name).c_str()) == 0 || errno == ENOENT) return {};
  return ErrnoStatus("remove the segment", name);
}

SharedMemory::~SharedMemory() {
  // Closing drops the locks unless a forked child shares them; unlocking would take them from it.
  if (descriptor_ >= 0) ::close(descriptor_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Status SharedMemory::Allocate(std::uint64_t size) {
  if (size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return ResourceExhausted(Describe() + " would have " + std::to_string(size) + " bytes");
  }
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(size));
  if (error == 0) return {};
  errno = error == EFBIG ? ENOSPC : error;
  return ErrnoStatus("get " + std::to_string(size) + " bytes of shared memory for", name_);
}

Result<std::uint64_t> SharedMemory::Size() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return ErrnoStatus("look at the segment", name_);
  if (!S_ISREG(info.st_mode)) return Corruption(Describe() + " is not a memory object");
  return static_cast<std::uint64_t>(info.st_size);
}

Status SharedMemory::Read(std::uint64_t offset, MutableByteSpan target) const {
  while (!target.empty()) {
    const ssize_t count =
        ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus("read the segment", name_);
    if (count == 0) return Corruption(Describe() + " ends at byte " + std::to_string(offset));
    offset += static_cast<std::uint64_t>(count);
    target = target.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

bool SharedMemory::IsRemoved() const {
  struct stat info {};
  return ::fstat(descriptor_, &info) == 0 && info.st_nlink == 0;
}

Result<bool> SharedMemory::TryLock(std::uint64_t byte) {
  struct flock lock = LockOf(byte, F_WRLCK);
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return ErrnoStatus("lock the segment", name_);
}

void SharedMemory::Unlock(std::uint64_t byte) {
  struct flock lock = LockOf(byte, F_UNLCK);
  SEGUE_CHECK(::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0);
}

bool SharedMemory::IsLockedByOther(std::uint64_t byte) const {
  struct flock lock = LockOf(byte, F_WRLCK);
  return ::fcntl(descriptor_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<SharedMapping> SharedMapping::Map(const SharedMemory& object, std::uint64_t offset,
                                         std::uint64_t size, Mode mode) {
  SEGUE_CHECK(size != 0);
  const std::string what = "map " + std::to_string(size) + " bytes of";
  const std::optional<std::uint64_t> reserved = CheckedAdd(size, 2 * kHugePageSize);
  if (!reserved) return ResourceExhausted("cannot " + what + " " + object.Describe());
  // A piece of address space that is surely long enough, of which the aligned middle is used.
  void* const space =
      ::mmap(nullptr, *reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return ErrnoStatus(what, object.Describe());
  const auto begin = reinterpret_cast<std::uintptr_t>(space);
  const std::uint64_t head = (kHugePageSize - begin % kHugePageSize) % kHugePageSize;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t used = head + DivideUp(size, page) * page;
  auto* const data = static_cast<std::byte*>(space) + head;
  const int protection = mode == Mode::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(data, size, protection, MAP_SHARED | MAP_FIXED, object.descriptor(),
             static_cast<off_t>(offset)) == MAP_FAILED) {
    const Status failure = ErrnoStatus(what, object.Describe());
    ::munmap(space, *reserved);
    return failure;
  }
  if (head != 0) ::munmap(space, head);
  ::munmap(static_cast<std::byte*>(space) + used, *reserved - used);
  SharedMapping mapping;
  mapping.data_ = data;
  mapping.size_ = size;
  return mapping;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void SharedMapping::AdviseHugePages(std::uint64_t offset) {
  (void)::madvise(data_ + offset, size_ - offset, MADV_HUGEPAGE);
}

void SharedMapping::CollapseToHugePages(std::uint64_t offset) {
  (void)::madvise(data_ + offset, size_ - offset, MADV_COLLAPSE);
}

}  // namespace segue
