// SPDX-License-Identifier: Apache-2.0
//
// State file and lock.
#include "sync/checkpoint_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_place.h"
#include "base/limits.h"
#include "base/out_of_memory.h"
#include "sync/json_fields.h"

namespace segue {
namespace {

// How often a lock is taken anew whose file was removed between opening and locking.
constexpr int kLockTries = 20;

Result<CheckpointState> ParseState(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const JsonFields json, JsonFields::Read(path, "segue-state"));
  CheckpointState state;
  SEGUE_RETURN_IF_ERROR(json.Get("lineage", state.lineage));
  SEGUE_RETURN_IF_ERROR(json.Get("version", state.version));
  SEGUE_RETURN_IF_ERROR(json.Get("digest", state.digest));
  SEGUE_RETURN_IF_ERROR(json.Get("plan", state.plan));
  return state;
}

}  // namespace

std::string StateDirectory(const std::string& checkpoint) {
  return JoinPath(checkpoint, kStateDirectoryName);
}

Result<std::optional<CheckpointState>> ReadState(const std::string& checkpoint) {
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(StateDirectory(checkpoint)));
  const std::string path = JoinPath(StateDirectory(checkpoint), "state.json");
  if (!FileExists(path)) return std::optional<CheckpointState>();
  Result<CheckpointState> state = ParseState(path);
  if (state.ok()) return std::optional<CheckpointState>(std::move(state).value());
  return Status(state.status().code(),
                state.status().message() +
                    "; the file may be deleted: the version is then found by the weights' digest");
}

std::string ChooseLineage(const std::string& wanted, const std::optional<CheckpointState>& state) {
  if (!wanted.empty()) return wanted;
  return state ? state->lineage : "default";
}

Status WriteState(const std::string& checkpoint, const CheckpointState& state) {
  JsonFields json("segue-state");
  json.Set("lineage", state.lineage);
  json.Set("version", state.version);
  json.Set("digest", state.digest.ToHex());
  json.Set("plan", state.plan.ToHex());
  const std::string directory = StateDirectory(checkpoint);
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(directory));
  SEGUE_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(directory, "state.json"), AsBytes(json.ToText())));
  return SyncDirectory(checkpoint);
}

Status RemoveLeftovers(const std::string& checkpoint) {
  const std::string directory = StateDirectory(checkpoint);
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(directory));
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(directory));
  for (const std::string& name : names) {
    const bool ours = name.starts_with("copy-") || name.find(".tmp.") != std::string::npos ||
                      name == "apply-done";
    if (ours) SEGUE_RETURN_IF_ERROR(RemoveTree(JoinPath(directory, name)));
  }
  return {};
}

Status CheckCheckpointDirectory(const std::string& checkpoint) {
  std::error_code error;
  if (std::filesystem::is_directory(checkpoint, error)) return {};
  if (!FileExists(checkpoint)) return NotFound("there is no checkpoint '" + checkpoint + "'");
  return InvalidArgument("checkpoint '" + checkpoint +
                         "' is a file; expected a directory, to be changed in place");
}

Result<CheckpointLock> CheckpointLock::Acquire(const std::string& checkpoint) {
  const std::string directory = StateDirectory(checkpoint);
  const std::string path = JoinPath(directory, kLockName);
  const Status busy =
      Unavailable("checkpoint '" + checkpoint + "' is being changed by another process");
  for (int tries = 0; tries < kLockTries; ++tries) {
    SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(directory));
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
    CheckpointLock lock(OpenPath(path, kFlags, 0644), path);
    if (lock.descriptor_ < 0 && errno == ENOENT) continue;
    if (lock.descriptor_ < 0) return ErrnoStatus("open", path);
    struct stat info {};
    if (::fstat(lock.descriptor_, &info) != 0) return ErrnoStatus("examine", path);
    if (!S_ISREG(info.st_mode)) return InvalidArgument("'" + path + "' is not a regular file");
    if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
      return errno == EWOULDBLOCK ? busy : ErrnoStatus("lock", path);
    }
    // Whoever held it may have removed it, directory and all, since it was opened.
    lock.held_ = lock.IsInPlace();
    if (lock.held_) return lock;
  }
  return busy;
}

bool CheckpointLock::IsInPlace() const {
  struct stat held {};
  struct stat named {};
  return ::fstat(descriptor_, &held) == 0 && ExaminePath(path_, named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

CheckpointLock::CheckpointLock(CheckpointLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      held_(std::exchange(other.held_, false)),
      path_(std::move(other.path_)) {}

CheckpointLock& CheckpointLock::operator=(CheckpointLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(held_, other.held_);
  std::swap(path_, other.path_);
  return *this;
}

CheckpointLock::~CheckpointLock() {
  // Left behind for want of memory it is in nobody's way.
  (void)CatchOutOfMemory([this]() -> Status {
    if (held_) RemoveLoneLock();
    return {};
  });
  if (descriptor_ >= 0) ::close(descriptor_);
}

// While the lock is held: who has opened the file meanwhile finds that it is no longer in place.
void CheckpointLock::RemoveLoneLock() const {
  const std::string directory = DirectoryOf(path_);
  const auto names = ListDirectory(directory);
  const std::vector<std::string> lone = {kLockName};
  if (!names.ok() || names.value() != lone || !IsInPlace()) return;
  const FilePlace place = LocateFile(directory);
  if (place.error != 0 || !RemoveFile(path_).ok()) return;
  (void)::unlinkat(place.folder, place.name.c_str(), AT_REMOVEDIR);
}

}  // namespace segue
