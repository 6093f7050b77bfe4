// SPDX-License-Identifier: Apache-2.0
//
// DirStore: a store in a folder of a local or shared file system. Objects are files below the root,
// readable by any tool; how they get there: dir_writer.h.
//
// Network file systems remember for up to a minute that a name was absent (case G1), and a handle
// may go stale when another machine removes the file. So absence is believed only after the
// folders on the way have been listed, which refreshes that memory, and after a bounded wait; a
// stale handle is opened anew once. A reader that has an object open gets it whole even if it is
// deleted meanwhile, or is told that it is gone.
//
// Names are checked before any open, so none leads out of the root. A symbolic link in an object's
// own place is refused; links to folders are followed: who may make them may as well move the root.
// A server, whose clients may not, gives ConfinedFiles (confined_files.h), which follows none.
// Thread-safe; any number of processes and machines may share a root.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/dir_writer.h"
#include "store/file_system.h"
#include "store/store.h"

namespace segue {

// Tries after the first when an object is not found, each after a listing of its folders. The first
// follows at once, since the listing alone is the cure on NFS; then the waits double: 20, 40, 80,
// 160, 320 ms. Together 0.6 s: enough for a listing that itself lags behind, and short enough to
// answer a caller who asks for what was pruned.
inline constexpr int kMissingRetryCountMax = 6;
inline constexpr std::chrono::milliseconds kMissingWaitFirst{20};

// An object that is open for reading: the same bytes to the end, even if it is deleted meanwhile.
// One thread at a time; must not outlive its store.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual std::uint64_t size() const = 0;
  // Differs between two objects that had the same name one after the other.
  virtual const std::string& tag() const = 0;
  // `target.size()` bytes from `offset`, within the object.
  virtual Status Read(std::uint64_t offset, MutableByteSpan target) = 0;
};

class DirStore : public Store {
 public:
  struct Options {
    std::string url;   // For messages.
    std::string root;  // The folder; a link to one is followed.
    bool create = false;
  };

  // With `create` the root and what is missing above it are made, durably. Otherwise NotFound when
  // there is no root. `files` must outlive the store and its writers.
  static Result<std::unique_ptr<DirStore>> Open(Options options,
                                                FileSystem& files = PosixFileSystem::Instance());

  // For those who pass objects on in pieces.
  Result<std::unique_ptr<ObjectReader>> OpenReader(const std::string& name);

  Result<std::unique_ptr<StoreWriter>> StartWrite() override;
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override;
  // An empty prefix is the root. Unavailable or NotFound when the root itself cannot be listed: a
  // store that was unmounted must not look like one without versions.
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  // The removal is durable; folders that it leaves empty go too.
  Status Delete(const std::string& name) override;
  const std::string& url() const override { return place_.url; }

  // A writer that is hit all the same fails to commit, and nothing is seen of it. The clock is the
  // file system's own.
  Status RemoveStaleTemporaries(std::chrono::seconds age) override;

 private:
  struct Object {
    OpenFile file;
    FileFacts facts;
  };
  class Reader;

  DirStore(FileSystem& files, DirWriter::Place place);

  Status Patiently(const std::string& name, const std::function<Status()>& attempt);
  Result<Object> OpenObject(const std::string& name);
  Result<ByteVector> Read(const Object& object, const std::string& name, std::uint64_t offset,
                          std::uint64_t size);
  Status ReadInto(const Object& object, const std::string& name, std::uint64_t offset,
                  MutableByteSpan target);
  Status ListFoldersOf(const std::string& name);
  Result<std::vector<std::string>> ListKind(const std::string& prefix, FileKind kind);
  Result<bool> IsStale(const std::string& temporary, std::int64_t now_ns, std::chrono::seconds age);
  void RemoveEmptyFolders(std::string folder);
  std::string Path(const std::string& name) const;
  std::string Describe(const std::string& name) const;

  FileSystem& files_;
  const DirWriter::Place place_;
};

}  // namespace segue
