// SPDX-License-Identifier: Apache-2.0
//
// DirWriter: temporary file, sync, link, sync of the folders. What must hold: nothing is linked
// before its bytes are synced, and success is told only after every folder is.
#include "store/dir_writer.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/out_of_memory.h"

namespace segue {
namespace {

// host-pid-counter-random: unique among threads by the counter, processes by the pid, machines by
// the host; the random part covers copied containers, which share host name and pid.
std::string TemporaryName() {
  static std::atomic<std::uint64_t> counter{0};
  std::array<char, 256> host{};
  // A host name that cannot be had, or is cut, costs nothing but distinctness.
  (void)::gethostname(host.data(), host.size() - 1);
  const Sha256 host_hash = HashSha256(AsBytes(host.data()));
  std::array<std::byte, 8> random{};
  SEGUE_CHECK(::getrandom(random.data(), random.size(), 0) == ssize_t{random.size()});
  return ToHex(ByteSpan(host_hash.bytes).first(4)) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(counter.fetch_add(1)) + "-" + ToHex(random);
}

std::string Unwritable(const std::string& url) {
  return "store '" + url + "' should be a writable folder";
}

}  // namespace

Result<std::unique_ptr<DirWriter>> DirWriter::Start(FileSystem& files, const Place& place) {
  const std::string folder = JoinPath(place.root, kTemporaryFolder);
  const std::string temporary = JoinPath(folder, TemporaryName());
  OpenFile file(files, files.CreateNew(temporary));
  if (file.get() == -ENOENT) {
    const int error = files.MakeFolder(folder);
    if (error < 0 && error != -EEXIST) {
      return ErrorStatus(error, "create folder", folder).WithContext(Unwritable(place.url));
    }
    file = OpenFile(files, files.CreateNew(temporary));
  }
  if (file.get() < 0) {
    return ErrorStatus(file.get(), "create", temporary).WithContext(Unwritable(place.url));
  }
  return std::unique_ptr<DirWriter>(new DirWriter(files, place, temporary, std::move(file)));
}

DirWriter::DirWriter(FileSystem& files, const Place& place, std::string temporary, OpenFile file)
    : files_(files), place_(place), temporary_(std::move(temporary)), file_(std::move(file)) {}

DirWriter::~DirWriter() {
  (void)CatchOutOfMemory([this]() -> Status {
    Discard();
    return {};
  });
}

void DirWriter::Discard() {
  file_.Close();
  // What cannot be removed is left to RemoveStaleTemporaries(): it shows to no reader.
  if (!temporary_.empty()) (void)files_.Unlink(std::exchange(temporary_, {}));
}

Status DirWriter::Append(ByteSpan bytes) {
  SEGUE_CHECK(!spent_);
  while (failure_.ok() && !bytes.empty()) {
    const std::int64_t wrote = files_.Write(file_.get(), bytes);
    if (wrote > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    } else {
      // Nothing written without an error: a broken file system, which must not spin us.
      const int error = wrote == 0 ? -EIO : static_cast<int>(wrote);
      failure_ = ErrorStatus(error, "write", temporary_).WithContext(Unwritable(place_.url));
    }
  }
  return failure_;
}

Result<PutOutcome> DirWriter::Commit(const std::string& name) {
  SEGUE_CHECK(!spent_);
  spent_ = true;
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  SEGUE_RETURN_IF_ERROR(failure_);
  SEGUE_RETURN_IF_ERROR(Seal());
  const std::string target = JoinPath(place_.root, name);
  Result<PutOutcome> outcome = LinkTo(target);
  if (!outcome.ok()) {
    return outcome.status().WithContext("object '" + name + "' of store '" + place_.url +
                                        "' should be linked into its folder");
  }
  Discard();
  // Also when the object was there: its writer may not have come this far yet, or never did.
  SEGUE_RETURN_IF_ERROR(SyncFolders(target));
  return outcome;
}

// Network file systems report lost bytes at the sync or at the close, and only once.
Status DirWriter::Seal() {
  int error = files_.Sync(file_.get());
  if (error == 0) error = file_.Close();
  if (error == 0) return {};
  return ErrorStatus(error, "sync", temporary_).WithContext(Unwritable(place_.url));
}

Result<PutOutcome> DirWriter::LinkTo(const std::string& target) {
  int error = 0;
  for (int tries = 0; tries < kLinkTryCountMax; ++tries) {
    error = files_.Link(temporary_, target);
    if (error == 0 || LinkIsThere()) return PutOutcome::kCreated;
    if (error == -EEXIST) {
      SEGUE_RETURN_IF_ERROR(CheckIsObject(target));
      return PutOutcome::kAlreadyThere;
    }
    if (error != -ENOENT && error != -ESTALE) break;
    const int made = MakeFolders(files_, DirectoryOf(target));
    if (made < 0 && made != -ENOENT) {
      error = made;
      break;
    }
  }
  return LinkFailure(error, target);
}

// NFS: when the answer to a link is lost, the request is sent again and fails although the first
// one made the link. Our temporary then has two names, and only we ever link it. Asked of an opened
// file, because opening fetches the attributes anew.
bool DirWriter::LinkIsThere() {
  const OpenFile file(files_, files_.OpenForRead(temporary_));
  FileFacts facts;
  return file.get() >= 0 && files_.Examine(file.get(), facts) == 0 && facts.link_count == 2;
}

// A folder or a link under the name is not "already there": nobody could ever read it.
Status DirWriter::CheckIsObject(const std::string& target) {
  const OpenFile file(files_, files_.OpenForRead(target));
  FileFacts facts;
  const bool seen = file.get() >= 0 && files_.Examine(file.get(), facts) == 0;
  if (file.get() == -ELOOP || (seen && facts.kind != FileKind::kFile)) {
    return InvalidArgument("'" + target + "' is there and is no regular file");
  }
  return {};  // What cannot be opened was there all the same, and may be gone by now.
}

Status DirWriter::LinkFailure(int error, const std::string& target) {
  const OpenFile file(files_, files_.OpenForRead(temporary_));
  if (file.get() == -ENOENT) {
    return Unavailable("temporary file '" + temporary_ +
                       "' is gone: it was removed as stale, or with the store");
  }
  if (error == -ENOTDIR) {
    return InvalidArgument("a part of '" + target + "' is a file, expected a folder");
  }
  Status status = ErrorStatus(error, "link", target);
  // EPERM is what Linux says for a file system without hard links.
  if (error == -EPERM || error == -ENOTSUP || error == -ENOSYS || error == -EXDEV) {
    return Unsupported(status.message() + " (a dir store needs one file system with hard links)");
  }
  return status;
}

// All of them, not just those that we made: another writer may have made one and not synced it yet.
Status DirWriter::SyncFolders(const std::string& target) {
  for (std::string folder = DirectoryOf(target);; folder = DirectoryOf(folder)) {
    const int error = files_.SyncFolder(folder);
    // Gone: the object has been deleted since, and the emptied folder with it.
    if (error < 0 && error != -ENOENT && error != -ESTALE) {
      return ErrorStatus(error, "sync folder", folder).WithContext(Unwritable(place_.url));
    }
    if (folder.size() <= place_.root.size()) return {};
  }
}

Result<std::int64_t> DirWriter::ModifiedNs() {
  FileFacts facts;
  int error = files_.Sync(file_.get());
  if (error == 0) error = files_.Examine(file_.get(), facts);
  if (error < 0) return ErrorStatus(error, "examine", temporary_);
  return facts.modified_ns;
}

}  // namespace segue
