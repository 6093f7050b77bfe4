// SPDX-License-Identifier: Apache-2.0
//
// DirWriter: one object on its way into a dir store. The bytes go into a temporary file below
// "<root>/.tmp", are synced, and get their final name by link(2): atomic, refused when the name is
// taken, and so on NFS too, which renameat2 is not. Then every folder from the object's up to the
// root is synced, so that the name is as durable as the bytes.
//
// A reader may see the object for the moments between the link and the folders' sync; a power
// failure just then takes the name back. No caller has been told of success by then, and POSIX has
// no call that would do both at once.
//
// One thread at a time. After a failure or Commit() a writer is spent: start another.
#pragma once

#include <memory>
#include <string>

#include "store/file_system.h"
#include "store/store.h"

namespace segue {

// Below the root, on the same file system as the objects. No object name begins with '.'.
inline constexpr std::string_view kTemporaryFolder = ".tmp";

// Another's Delete() may remove a folder that we found or made before our link is in it. Every
// round that we lose, some deleter has finished, so a few are plenty.
inline constexpr int kLinkTryCountMax = 16;

class DirWriter : public StoreWriter {
 public:
  // Where a store lies, and what it is called in messages.
  struct Place {
    std::string url;
    std::string root;
  };

  static Result<std::unique_ptr<DirWriter>> Start(FileSystem& files, const Place& place);
  // Removes the temporary, whatever has happened.
  ~DirWriter() override;

  Status Append(ByteSpan bytes) override;
  // A failure here may come after the link; then a second put says kAlreadyThere, having synced.
  Result<PutOutcome> Commit(const std::string& name) override;

  // When the temporary was last written, by the clock of the machine that holds it.
  Result<std::int64_t> ModifiedNs();

 private:
  DirWriter(FileSystem& files, const Place& place, std::string temporary, OpenFile file);

  Status Seal();
  Result<PutOutcome> LinkTo(const std::string& target);
  bool LinkIsThere();
  Status CheckIsObject(const std::string& target);
  Status LinkFailure(int error, const std::string& target);
  Status SyncFolders(const std::string& target);
  void Discard();

  FileSystem& files_;
  const Place place_;
  std::string temporary_;  // Empty once discarded.
  OpenFile file_;
  Status failure_;  // Of an earlier Append(): half an object must not be committed.
  bool spent_ = false;
};

}  // namespace segue
