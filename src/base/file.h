// SPDX-License-Identifier: Apache-2.0
//
// Files: mapped views, durable writes and directory listings. The one door to the file system, so
// that "durable" and "atomic" mean the same everywhere: bytes are synced, then renamed or linked,
// then the directory is synced.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

// The whole of one file in memory. Move-only; an empty file maps to an empty span.
class MappedFile {
 public:
  enum class Mode { kReadOnly, kReadWrite };

  // Follows symlinks; refuses anything but a regular file.
  static Result<MappedFile> Open(const std::string& path, Mode mode = Mode::kReadOnly);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  ByteSpan bytes() const { return {data_, size_}; }
  // Empty unless opened with kReadWrite.
  MutableByteSpan mutable_bytes() {
    return writable_ ? MutableByteSpan{data_, size_} : MutableByteSpan{};
  }
  // Writes changed pages to the disk and waits.
  Status Sync();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool writable_ = false;
  std::string path_;
};

// A file that is being written. Not visible as complete until the owner renames or links it.
class OutputFile {
 public:
  // Creates `path` anew. A file or link that has the name is removed, never written through: what
  // other names share with it stays as it is.
  static Result<OutputFile> Create(const std::string& path);

  OutputFile() = default;
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  Status Append(ByteSpan bytes);
  Status WriteAt(std::uint64_t offset, ByteSpan bytes);
  Status Sync();
  // Closes; a failure here may mean that bytes were lost.
  Status Close();
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  std::uint64_t offset_ = 0;
  std::string path_;
};

enum class Links { kFollow, kRefuse };

// The whole file, refused with ResourceExhausted when it is larger than `size_max`. `links`: what
// to do with a symlink in the file's own place (refused: InvalidArgument).
Result<ByteVector> ReadFile(const std::string& path, std::uint64_t size_max,
                            Links links = Links::kFollow);
// `size` bytes from `offset`; Corruption when the file ends before.
Result<ByteVector> ReadFileRange(const std::string& path, std::uint64_t offset, std::uint64_t size);
// Temporary file beside `path`, sync, rename, sync of the directory.
Status WriteFileAtomic(const std::string& path, ByteSpan bytes);

// Durability of names: what was created, renamed or removed in `directory`.
Status SyncDirectory(const std::string& directory);
// Flushes one existing file's data.
Status SyncFile(const std::string& path);

// A part of a file.
struct FileRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
// Gives the ranges of an existing file blocks of their own (holes are filled, blocks shared with a
// clone are copied), so that writing there through a mapping cannot meet a full disk.
// ResourceExhausted when it is full. Success where the file system knows no such call, or cannot
// promise it (those that copy on write).
Status AllocateBlocks(const std::string& path, std::span<const FileRange> ranges);
// Bytes that are free for us on the file system of `path` or of the nearest folder above it.
Result<std::uint64_t> FreeSpace(const std::string& path);

// Names in the directory, sorted, without "." and "..". NotFound when there is no such directory.
Result<std::vector<std::string>> ListDirectory(const std::string& directory);
// Creates the directory and its parents; success when it is there already.
Status MakeDirectories(const std::string& directory);
// Creates one directory; success when it is there already. InvalidArgument when the name is a
// symlink's, or anything else's.
Status MakeOwnDirectory(const std::string& directory);
// InvalidArgument when there is something of that name and it is not a directory itself.
Status CheckOwnDirectory(const std::string& directory);
// Removes one file; success when it is not there.
Status RemoveFile(const std::string& path);
// Removes a directory and what it holds (links are removed, never followed); success when absent.
Status RemoveTree(const std::string& directory);
Status RenameFile(const std::string& source, const std::string& target);
// The same, but InvalidArgument when `target` exists.
Status RenameToNew(const std::string& source, const std::string& target);

bool FileExists(const std::string& path);
Result<std::uint64_t> FileSize(const std::string& path);
std::string JoinPath(std::string_view directory, std::string_view name);
// The part before the last '/', "." without one.
std::string DirectoryOf(const std::string& path);

// Status for the current errno: "cannot <action> '<path>': <reason>".
Status ErrnoStatus(std::string_view action, std::string_view path);

}  // namespace segue
