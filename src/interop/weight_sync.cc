// SPDX-License-Identifier: Apache-2.0
//
// State and lock. The lock file stays: other programs open it by its name and wait on it.
#include "interop/weight_sync.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/file_place.h"
#include "base/parse_json.h"
#include "checkpoint/checkpoint.h"
#include "interop/delta_index.h"

namespace segue {
namespace {

constexpr std::chrono::milliseconds kLookInterval{20};

std::string StatePath(const std::string& checkpoint) {
  return JoinPath(checkpoint, kDiskStateName);
}

// What killed processes left of a state that they were about to write. Under the lock.
Status RemoveHalfWrittenStates(const std::string& checkpoint) {
  const std::string folder = WeightSyncFolder(checkpoint);
  const std::string begin = StatePath(checkpoint) + ".tmp.";
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(folder));
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (path.starts_with(begin)) SEGUE_RETURN_IF_ERROR(RemoveFile(path));
  }
  return {};
}

}  // namespace

std::string WeightSyncFolder(const std::string& checkpoint) {
  return JoinPath(checkpoint, ".weight_sync");
}

Result<std::optional<std::uint64_t>> ReadDiskState(const std::string& checkpoint) {
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(WeightSyncFolder(checkpoint)));
  const std::string path = StatePath(checkpoint);
  if (!FileExists(path)) return std::optional<std::uint64_t>();
  SEGUE_ASSIGN_OR_RETURN(const ByteVector text,
                         ReadFile(path, limits::kDiskStateSizeMax, Links::kRefuse));
  const auto json = ParseJson<nlohmann::json>(AsText(text), limits::kJsonSmallValuesMax);
  if (json.ok() && json->is_object() && json->contains("version") &&
      json->at("version").is_string()) {
    if (const auto version = ParseDiskVersion(json->at("version").get<std::string>())) {
      return version;
    }
  }
  return Corruption("'" + path +
                    "' does not say a version in six digits; the file may be deleted: the next "
                    "pull then starts from a full checkpoint");
}

Status WriteDiskState(const std::string& checkpoint, std::uint64_t version) {
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(WeightSyncFolder(checkpoint)));
  return WriteFileAtomic(StatePath(checkpoint),
                         AsBytes("{\"version\": \"" + DiskVersionText(version) + "\"}"));
}

Status RemoveDiskState(const std::string& checkpoint) {
  SEGUE_RETURN_IF_ERROR(RemoveFile(StatePath(checkpoint)));
  return SyncDirectory(WeightSyncFolder(checkpoint));
}

Result<WeightSyncLock> WeightSyncLock::Acquire(const std::string& checkpoint,
                                               std::chrono::milliseconds wait) {
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(WeightSyncFolder(checkpoint)));
  const std::string path = JoinPath(WeightSyncFolder(checkpoint), "lock");
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  WeightSyncLock lock(OpenPath(path, kFlags, 0644));
  if (lock.descriptor_ < 0) return ErrnoStatus("open", path);
  struct stat info {};
  if (::fstat(lock.descriptor_, &info) != 0) return ErrnoStatus("examine", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("'" + path + "' is not a regular file");
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoStatus("lock", path);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Unavailable("checkpoint '" + checkpoint + "' is being changed by another pull");
    }
    std::this_thread::sleep_for(kLookInterval);
  }
  SEGUE_RETURN_IF_ERROR(RemoveHalfWrittenStates(checkpoint));
  return lock;
}

WeightSyncLock::WeightSyncLock(WeightSyncLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

WeightSyncLock& WeightSyncLock::operator=(WeightSyncLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

WeightSyncLock::~WeightSyncLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace segue
