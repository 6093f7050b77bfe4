// SPDX-License-Identifier: Apache-2.0
//
// Files on POSIX, by the places of their paths (base/file_place.h). Short reads and writes and
// EINTR are handled here and nowhere else.
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/allocated.h"
#include "base/file_place.h"

namespace segue {
namespace {

// A descriptor that closes itself. O_NONBLOCK: opening a pipe by mistake fails later, never waits.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, mode_t mode = 0)
      : value_(OpenPath(path, flags | O_NONBLOCK, mode)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// The calls themselves, by the place of a path.
int Unlink(const std::string& path) {
  const FilePlace place = LocateFile(path);
  if (place.error == 0) return ::unlinkat(place.folder, place.name.c_str(), 0);
  errno = -place.error;
  return -1;
}

int MakeFolder(const std::string& path) {
  const FilePlace place = LocateFile(path);
  if (place.error == 0) return ::mkdirat(place.folder, place.name.c_str(), 0777);
  errno = -place.error;
  return -1;
}

int Rename(const std::string& source, const std::string& target, unsigned flags) {
  const FilePlace from = LocateFile(source);
  const FilePlace to = LocateFile(target);
  if (from.error == 0 && to.error == 0) {
    return ::renameat2(from.folder, from.name.c_str(), to.folder, to.name.c_str(), flags);
  }
  errno = from.error != 0 ? -from.error : -to.error;
  return -1;
}

Status ReadExactly(int descriptor, const std::string& path, std::uint64_t offset,
                   MutableByteSpan target) {
  while (!target.empty()) {
    const ssize_t got =
        ::pread(descriptor, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("read", path);
    if (got == 0) {
      return Corruption("'" + path + "' ends " + std::to_string(target.size()) +
                        " bytes before the expected end");
    }
    target = target.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<std::uint64_t> RegularFileSize(int descriptor, const std::string& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return ErrnoStatus("examine", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("'" + path + "' is not a regular file");
  return static_cast<std::uint64_t>(info.st_size);
}

// One range, by the strongest promise that the file system knows.
int AllocateRange(int descriptor, const FileRange& range) {
  const auto offset = static_cast<off_t>(range.offset);
  const auto size = static_cast<off_t>(range.size);
  // XFS: a clone's blocks are copied now. Others refuse the flag.
  for (const int mode : {FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE}) {
    int result = 0;
    do {
      result = ::fallocate(descriptor, mode, offset, size);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS) return errno;
  }
  return 0;
}

}  // namespace

Status ErrnoStatus(std::string_view action, std::string_view path) {
  const int error = errno;
  std::string message =
      "cannot " + std::string(action) + " '" + std::string(path) + "': " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) return NotFound(std::move(message));
  if (error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EMFILE || error == EFBIG) {
    return ResourceExhausted(std::move(message));
  }
  if (error == EACCES || error == EPERM || error == EROFS || error == EISDIR ||
      error == ENAMETOOLONG || error == ELOOP) {
    return InvalidArgument(std::move(message));
  }
  return Unavailable(std::move(message));
}

Result<MappedFile> MappedFile::Open(const std::string& path, Mode mode) {
  const bool writable = mode == Mode::kReadWrite;
  Descriptor file(path, writable ? O_RDWR : O_RDONLY);
  if (file.get() < 0) return ErrnoStatus("open", path);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, RegularFileSize(file.get(), path));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.writable_ = writable;
  mapped.size_ = size;
  if (size == 0) return mapped;
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* data = ::mmap(nullptr, size, protection, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("map", path);
  mapped.data_ = static_cast<std::byte*>(data);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(writable_, other.writable_);
  std::swap(path_, other.path_);
  return *this;
}

Status MappedFile::Sync() {
  if (data_ != nullptr && ::msync(data_, size_, MS_SYNC) != 0) return ErrnoStatus("sync", path_);
  return {};
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  if (Unlink(path) != 0 && errno != ENOENT) return ErrnoStatus("create", path);
  Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  if (file.get() < 0) return ErrnoStatus("create", path);
  OutputFile output;
  output.descriptor_ = file.release();
  output.path_ = path;
  return output;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(offset_, other.offset_);
  std::swap(path_, other.path_);
  return *this;
}

Status OutputFile::Append(ByteSpan bytes) {
  SEGUE_RETURN_IF_ERROR(WriteAt(offset_, bytes));
  offset_ += bytes.size();
  return {};
}

Status OutputFile::WriteAt(std::uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
  return {};
}

Status OutputFile::Sync() {
  if (::fsync(descriptor_) != 0) return ErrnoStatus("sync", path_);
  return {};
}

Status OutputFile::Close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) return ErrnoStatus("close", path_);
  return {};
}

Result<ByteVector> ReadFile(const std::string& path, std::uint64_t size_max, Links links) {
  Descriptor file(path, O_RDONLY | (links == Links::kRefuse ? O_NOFOLLOW : 0));
  if (file.get() < 0) return ErrnoStatus("open", path);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, RegularFileSize(file.get(), path));
  if (size > size_max) {
    return ResourceExhausted("'" + path + "' has " + std::to_string(size) +
                             " bytes, the limit is " + std::to_string(size_max));
  }
  ByteVector bytes(size);
  SEGUE_RETURN_IF_ERROR(ReadExactly(file.get(), path, 0, bytes));
  return bytes;
}

Result<ByteVector> ReadFileRange(const std::string& path, std::uint64_t offset,
                                 std::uint64_t size) {
  Descriptor file(path, O_RDONLY);
  if (file.get() < 0) return ErrnoStatus("open", path);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t file_size, RegularFileSize(file.get(), path));
  if (offset > file_size || size > file_size - offset) {
    return Corruption("'" + path + "' has " + std::to_string(file_size) + " bytes, " +
                      std::to_string(size) + " from offset " + std::to_string(offset) +
                      " were asked for");
  }
  ByteVector bytes(size);
  SEGUE_RETURN_IF_ERROR(ReadExactly(file.get(), path, offset, bytes));
  return bytes;
}

Status WriteFileAtomic(const std::string& path, ByteSpan bytes) {
  // Threads of one process may write the same path.
  static std::atomic<unsigned> writes{0};
  const std::string temporary =
      path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(writes++);
  const auto write = [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(temporary));
    SEGUE_RETURN_IF_ERROR(file.Append(bytes));
    SEGUE_RETURN_IF_ERROR(file.Sync());
    SEGUE_RETURN_IF_ERROR(file.Close());
    return RenameFile(temporary, path);
  };
  if (Status status = write(); !status.ok()) {
    (void)Unlink(temporary);
    return status;
  }
  return SyncDirectory(DirectoryOf(path));
}

Status SyncDirectory(const std::string& directory) {
  Descriptor handle(directory, O_RDONLY | O_DIRECTORY);
  if (handle.get() < 0) return ErrnoStatus("open directory", directory);
  // Some network file systems refuse fsync on directories; there the rename itself is durable.
  if (::fsync(handle.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return ErrnoStatus("sync directory", directory);
  }
  return {};
}

Status SyncFile(const std::string& path) {
  Descriptor file(path, O_RDONLY);
  if (file.get() < 0) return ErrnoStatus("open", path);
  if (::fsync(file.get()) != 0) return ErrnoStatus("sync", path);
  return {};
}

Status AllocateBlocks(const std::string& path, std::span<const FileRange> ranges) {
  Descriptor file(path, O_RDWR);
  if (file.get() < 0) return ErrnoStatus("open", path);
  for (const FileRange& range : ranges) {
    if (range.size == 0) continue;
    errno = AllocateRange(file.get(), range);
    if (errno != 0) return ErrnoStatus("allocate blocks of", path);
  }
  return {};
}

Result<std::uint64_t> FreeSpace(const std::string& path) {
  std::string place = path;
  struct statvfs info {};
  while (::statvfs(place.c_str(), &info) != 0) {
    if (errno != ENOENT || place == "." || place == "/") return ErrnoStatus("examine", place);
    place = DirectoryOf(place);
  }
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

Result<std::vector<std::string>> ListDirectory(const std::string& directory) {
  Descriptor folder(directory, O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0) return ErrnoStatus("list directory", directory);
  const auto close = [](DIR* stream) { ::closedir(stream); };
  // The descriptor is a folder's: null only for want of memory.
  const std::unique_ptr<DIR, decltype(close)> stream(Allocated(::fdopendir(folder.get())), close);
  (void)folder.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus("list directory", directory);
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeDirectories(const std::string& directory) {
  int made = MakeFolder(directory);
  const std::string above = DirectoryOf(directory);
  if (made != 0 && errno == ENOENT && above != directory) {
    SEGUE_RETURN_IF_ERROR(MakeDirectories(above));
    made = MakeFolder(directory);
  }
  // What is there already is a folder, or a link to one.
  if (made == 0 || Descriptor(directory, O_PATH | O_DIRECTORY).get() >= 0) return {};
  return ErrnoStatus("create directory", directory);
}

Status CheckOwnDirectory(const std::string& directory) {
  struct stat info {};
  if (ExaminePath(directory, info) != 0) {
    return errno == ENOENT ? Status() : ErrnoStatus("examine", directory);
  }
  if (S_ISDIR(info.st_mode)) return {};
  return InvalidArgument("'" + directory + "' is " +
                         (S_ISLNK(info.st_mode) ? "a symlink" : "not a directory") +
                         "; Segue keeps its own files there and follows no link to them");
}

Status MakeOwnDirectory(const std::string& directory) {
  if (MakeFolder(directory) != 0 && errno != EEXIST) {
    return ErrnoStatus("create directory", directory);
  }
  return CheckOwnDirectory(directory);
}

Status RemoveFile(const std::string& path) {
  if (Unlink(path) != 0 && errno != ENOENT) return ErrnoStatus("remove", path);
  return {};
}

Status RemoveTree(const std::string& directory) {
  const FilePlace place = LocateFile(directory);
  std::error_code error;
  if (!place.confined) {
    std::filesystem::remove_all(directory, error);
  } else if (place.error == 0) {
    std::filesystem::remove_all(PinnedPath(place.folder, place.name), error);
  } else if (place.error != -ENOENT) {
    error.assign(-place.error, std::generic_category());
  }
  if (!error) return {};
  errno = error.value();
  return ErrnoStatus("remove directory", directory);
}

Status RenameFile(const std::string& source, const std::string& target) {
  return Rename(source, target, 0) == 0 ? Status() : ErrnoStatus("rename to", target);
}

Status RenameToNew(const std::string& source, const std::string& target) {
  const auto exists = [&] { return InvalidArgument("'" + target + "' exists already"); };
  if (FileExists(target)) return exists();
  if (Rename(source, target, RENAME_NOREPLACE) == 0) return {};
  if (errno == EEXIST) return exists();
  // Some network file systems know no flags.
  if (errno == EINVAL || errno == ENOSYS) return RenameFile(source, target);
  return ErrnoStatus("rename to", target);
}

bool FileExists(const std::string& path) {
  struct stat info {};
  return ExaminePath(path, info) == 0;
}

Result<std::uint64_t> FileSize(const std::string& path) {
  const Descriptor file(path, O_PATH);
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return ErrnoStatus("examine", path);
  return static_cast<std::uint64_t>(info.st_size);
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty() || directory.back() == '/') {
    return std::string(directory) + std::string(name);
  }
  return std::string(directory) + "/" + std::string(name);
}

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace segue
