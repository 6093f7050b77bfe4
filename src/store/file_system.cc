// SPDX-License-Identifier: Apache-2.0
//
// FileSystem on POSIX. What must hold: nothing here decides anything; it calls, repeats what a
// signal interrupted, and hands errno on. Where a path leads is asked of Locate() by every call.
#include "store/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "base/allocated.h"
#include "base/check.h"
#include "base/file.h"

namespace segue {
namespace {

// The result of a system call that sets errno, repeated when interrupted; -errno when it failed.
template <typename Call>
auto Errno(Call call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

FileKind KindOfMode(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  return S_ISDIR(mode) ? FileKind::kFolder : FileKind::kOther;
}

FileKind KindOfEntry(unsigned char type) {
  switch (type) {
    case DT_REG: return FileKind::kFile;
    case DT_DIR: return FileKind::kFolder;
    case DT_UNKNOWN: return FileKind::kUnknown;
    default: return FileKind::kOther;
  }
}

int OpenFolder(const FilePlace& place) {
  if (place.error < 0) return place.error;
  return OpenFolderAt(place.folder, place.name, O_RDONLY | (place.confined ? O_NOFOLLOW : 0));
}

// Some file systems list names without kinds. What cannot be examined stays unknown.
FileKind KindOfPath(int folder, const char* name) {
  struct stat info {};
  if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return FileKind::kUnknown;
  return KindOfMode(info.st_mode);
}

}  // namespace

FilePlace PosixFileSystem::Locate(const std::string& path) { return FilePlace(path); }

int PosixFileSystem::OpenForRead(const std::string& path) {
  const FilePlace place = Locate(path);
  if (place.error < 0) return place.error;
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  return Errno([&] { return ::openat(place.folder, place.name.c_str(), kFlags); });
}

int PosixFileSystem::CreateNew(const std::string& path) {
  const FilePlace place = Locate(path);
  if (place.error < 0) return place.error;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  return Errno([&] { return ::openat(place.folder, place.name.c_str(), kFlags, 0666); });
}

std::int64_t PosixFileSystem::ReadAt(int descriptor, std::uint64_t offset, MutableByteSpan target) {
  return Errno([&] {
    return ::pread(descriptor, target.data(), target.size(), static_cast<off_t>(offset));
  });
}

std::int64_t PosixFileSystem::Write(int descriptor, ByteSpan bytes) {
  return Errno([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
}

int PosixFileSystem::Examine(int descriptor, FileFacts& facts) {
  struct stat info {};
  const int error = Errno([&] { return ::fstat(descriptor, &info); });
  if (error < 0) return error;
  facts = {.kind = KindOfMode(info.st_mode),
           .size = static_cast<std::uint64_t>(info.st_size),
           .link_count = static_cast<std::uint64_t>(info.st_nlink),
           .modified_ns = info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
           .number = static_cast<std::uint64_t>(info.st_ino)};
  return 0;
}

int PosixFileSystem::Sync(int descriptor) {
  return Errno([&] { return ::fsync(descriptor); });
}

int PosixFileSystem::Close(int descriptor) {
  // Never repeated: on Linux an interrupted close has released the descriptor all the same.
  return ::close(descriptor) == 0 || errno == EINTR ? 0 : -errno;
}

int PosixFileSystem::Link(const std::string& source, const std::string& target) {
  const FilePlace from = Locate(source);
  const FilePlace to = Locate(target);
  if (from.error < 0 || to.error < 0) return std::min(from.error, to.error);
  return Errno(
      [&] { return ::linkat(from.folder, from.name.c_str(), to.folder, to.name.c_str(), 0); });
}

int PosixFileSystem::Unlink(const std::string& path) {
  const FilePlace place = Locate(path);
  if (place.error < 0) return place.error;
  return Errno([&] { return ::unlinkat(place.folder, place.name.c_str(), 0); });
}

int PosixFileSystem::MakeFolder(const std::string& path) {
  const FilePlace place = Locate(path);
  if (place.error < 0) return place.error;
  return Errno([&] { return ::mkdirat(place.folder, place.name.c_str(), 0777); });
}

int PosixFileSystem::RemoveFolder(const std::string& path) {
  const FilePlace place = Locate(path);
  if (place.error < 0) return place.error;
  return Errno([&] { return ::unlinkat(place.folder, place.name.c_str(), AT_REMOVEDIR); });
}

int PosixFileSystem::SyncFolder(const std::string& path) {
  const int descriptor = OpenFolder(Locate(path));
  if (descriptor < 0) return descriptor;
  const int error = Errno([&] { return ::fsync(descriptor); });
  ::close(descriptor);
  // Some network file systems refuse to sync a folder; there a name is durable once it is made.
  return error == -EINVAL || error == -ENOTSUP ? 0 : error;
}

int PosixFileSystem::List(const std::string& path, std::vector<FolderEntry>& entries) {
  entries.clear();
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const int descriptor = OpenFolder(Locate(path));
  if (descriptor < 0) return descriptor;
  // The descriptor is a folder's: null only for want of memory.
  const std::unique_ptr<DIR, decltype(close)> stream(Allocated(::fdopendir(descriptor)), close);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) return -errno;  // 0 at the end.
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    FileKind kind = KindOfEntry(entry->d_type);
    if (kind == FileKind::kUnknown) kind = KindOfPath(::dirfd(stream.get()), entry->d_name);
    entries.push_back({std::string(name), kind});
  }
}

void PosixFileSystem::Wait(std::chrono::milliseconds duration) {
  std::this_thread::sleep_for(duration);
}

PosixFileSystem& PosixFileSystem::Instance() {
  static PosixFileSystem files;
  return files;
}

int MakeFolders(FileSystem& files, const std::string& folder) {
  const int error = files.MakeFolder(folder);
  if (error == 0) return 1;
  if (error == -EEXIST) return 0;
  const std::string parent = DirectoryOf(folder);
  if (error != -ENOENT || parent == folder) return error;
  const int above = MakeFolders(files, parent);
  if (above < 0) return above;
  const int again = files.MakeFolder(folder);
  if (again < 0 && again != -EEXIST) return again;
  return above + (again == 0 ? 1 : 0);
}

Status ErrorStatus(int error, std::string_view action, std::string_view path) {
  errno = -error;
  return ErrnoStatus(action, path);
}

}  // namespace segue
