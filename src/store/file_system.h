// SPDX-License-Identifier: Apache-2.0
//
// FileSystem: the few system calls that a dir store makes, and the wait between tries. It is a
// seam: tests put a file system here that hides fresh names, goes stale, or loses an answer, as NFS
// does.
//
// Every call returns what the system call returned, or -errno: the store decides by the exact error
// (EEXIST, ENOENT, ESTALE), which a Status no longer has. Interrupted calls are repeated inside.
// Implementations are thread-safe and keep no descriptor to themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file_place.h"
#include "segue/status.h"

namespace segue {

enum class FileKind {
  kFile,
  kFolder,
  kOther,    // Links, pipes, devices: never an object.
  kUnknown,  // A listing that does not tell.
};

struct FileFacts {
  FileKind kind = FileKind::kUnknown;
  std::uint64_t size = 0;
  std::uint64_t link_count = 0;
  // By the clock of the machine that holds the file, which need not be ours.
  std::int64_t modified_ns = 0;
  // Of the file among those of its file system; used anew once the file is gone.
  std::uint64_t number = 0;
};

struct FolderEntry {
  std::string name;
  FileKind kind = FileKind::kUnknown;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A link in the last place is refused (ELOOP), a pipe does not block.
  virtual int OpenForRead(const std::string& path) = 0;
  // For writing; EEXIST when the name is taken, by whatever.
  virtual int CreateNew(const std::string& path) = 0;
  virtual std::int64_t ReadAt(int descriptor, std::uint64_t offset, MutableByteSpan target) = 0;
  virtual std::int64_t Write(int descriptor, ByteSpan bytes) = 0;
  virtual int Examine(int descriptor, FileFacts& facts) = 0;
  virtual int Sync(int descriptor) = 0;
  virtual int Close(int descriptor) = 0;

  // A second name for `source`, or EEXIST: the one atomic step of a store.
  virtual int Link(const std::string& source, const std::string& target) = 0;
  virtual int Unlink(const std::string& path) = 0;
  virtual int MakeFolder(const std::string& path) = 0;
  // ENOTEMPTY or EEXIST when something is in it.
  virtual int RemoveFolder(const std::string& path) = 0;
  // Makes the names in the folder durable.
  virtual int SyncFolder(const std::string& path) = 0;
  // Opens the folder anew every time: on NFS that opening is what refreshes the name cache.
  virtual int List(const std::string& path, std::vector<FolderEntry>& entries) = 0;

  virtual void Wait(std::chrono::milliseconds duration) = 0;
};

// The calls themselves. Tests derive from it and bend one or two.
class PosixFileSystem : public FileSystem {
 public:
  int OpenForRead(const std::string& path) override;
  int CreateNew(const std::string& path) override;
  std::int64_t ReadAt(int descriptor, std::uint64_t offset, MutableByteSpan target) override;
  std::int64_t Write(int descriptor, ByteSpan bytes) override;
  int Examine(int descriptor, FileFacts& facts) override;
  int Sync(int descriptor) override;
  int Close(int descriptor) override;
  int Link(const std::string& source, const std::string& target) override;
  int Unlink(const std::string& path) override;
  int MakeFolder(const std::string& path) override;
  int RemoveFolder(const std::string& path) override;
  int SyncFolder(const std::string& path) override;
  int List(const std::string& path, std::vector<FolderEntry>& entries) override;
  void Wait(std::chrono::milliseconds duration) override;

  // The one that every store uses unless a test says otherwise.
  static PosixFileSystem& Instance();

 protected:
  // Asked by every call that is given a path. Here: wherever the kernel finds it.
  virtual FilePlace Locate(const std::string& path);
};

// A descriptor that closes itself.
class OpenFile {
 public:
  OpenFile(FileSystem& files, int descriptor) : files_(&files), descriptor_(descriptor) {}
  ~OpenFile() { Close(); }
  OpenFile(OpenFile&& other) noexcept
      : files_(other.files_), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(files_, other.files_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  // Negative (-errno) when the opening failed.
  int get() const { return descriptor_; }
  int Close() { return descriptor_ < 0 ? 0 : files_->Close(std::exchange(descriptor_, -1)); }

 private:
  FileSystem* files_;
  int descriptor_;
};

// Creates the folder and what is missing above it. Returns how many it created, or -errno.
int MakeFolders(FileSystem& files, const std::string& folder);

// Status for a call's -errno: "cannot <action> '<path>': <reason>".
Status ErrorStatus(int error, std::string_view action, std::string_view path);

}  // namespace segue
