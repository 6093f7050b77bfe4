// SPDX-License-Identifier: Apache-2.0
//
// ScratchDirectory: mkdtemp, the lock, and the removal of the tree. A directory is marked only once
// it is locked, and only marked ones are swept: between two steps of its making it is nobody's to
// sweep, and at worst an empty directory stays.
#include "base/scratch_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/out_of_memory.h"

namespace segue {
namespace {

constexpr std::string_view kRandom = "-XXXXXX";
constexpr char kMark[] = ".segue-scratch";

Status MakeParent(const std::string& root) {
  if (::mkdir(root.c_str(), 0777) == 0 || errno == EEXIST) return {};
  return ErrnoStatus("make directory", root);
}

int OpenDirectory(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Ours, marked, and locked by nobody: its owner is dead.
void SweepOne(const std::string& path) {
  struct stat mark {};
  if (::lstat(JoinPath(path, kMark).c_str(), &mark) != 0) return;
  if (!S_ISREG(mark.st_mode) || mark.st_uid != ::geteuid()) return;
  const int directory = OpenDirectory(path);
  if (directory < 0) return;
  // Where locks are not to be had, nothing is known to be dead.
  if (::flock(directory, LOCK_EX | LOCK_NB) == 0) (void)RemoveTree(path);
  ::close(directory);
}

void Sweep(const std::string& root, const std::string& label) {
  const auto names = ListDirectory(root);
  if (!names.ok()) return;
  for (const std::string& name : names.value()) {
    const bool may_be = name.size() == label.size() + kRandom.size() && name.starts_with(label) &&
                        name[label.size()] == '-';
    if (may_be) SweepOne(JoinPath(root, name));
  }
}

}  // namespace

Result<ScratchDirectory> ScratchDirectory::Make(const std::string& parent,
                                                const std::string& label) {
  std::error_code error;
  std::string root = parent;
  if (root.empty()) root = std::filesystem::temp_directory_path(error).string();
  if (root.empty()) root = "/tmp";
  SEGUE_RETURN_IF_ERROR(MakeParent(root));
  Sweep(root, label);
  std::string path = JoinPath(root, label + std::string(kRandom));
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus("make a directory in", root);
  ScratchDirectory made(path, OpenDirectory(path));
  if (made.lock_ < 0) return ErrnoStatus("open", path);
  // Without a lock it stays after a crash, like any directory of others.
  if (::flock(made.lock_, LOCK_EX | LOCK_NB) != 0) return made;
  const int mark = ::openat(made.lock_, kMark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (mark < 0) return ErrnoStatus("make a file in", path);
  ::close(mark);
  return made;
}

ScratchDirectory::~ScratchDirectory() {
  // Nobody is left to be told. What stays for want of memory is swept by the next one made there.
  if (!path_.empty()) (void)CatchOutOfMemory([this] { return RemoveTree(path_); });
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace segue
