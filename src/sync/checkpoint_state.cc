// SPDX-License-Identifier: Apache-2.0
//
// State file and lock.
#include "sync/checkpoint_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "sync/json_fields.h"

namespace segue {

std::string StateDirectory(const std::string& checkpoint) { return JoinPath(checkpoint, ".segue"); }

Result<std::optional<CheckpointState>> ReadState(const std::string& checkpoint) {
  const std::string path = JoinPath(StateDirectory(checkpoint), "state.json");
  if (!FileExists(path)) return std::optional<CheckpointState>();
  SEGUE_ASSIGN_OR_RETURN(const JsonFields json, JsonFields::Read(path, "segue-state"));
  CheckpointState state;
  SEGUE_RETURN_IF_ERROR(json.Get("lineage", state.lineage));
  SEGUE_RETURN_IF_ERROR(json.Get("version", state.version));
  SEGUE_RETURN_IF_ERROR(json.Get("digest", state.digest));
  SEGUE_RETURN_IF_ERROR(json.Get("plan", state.plan));
  return std::optional<CheckpointState>(std::move(state));
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
  SEGUE_RETURN_IF_ERROR(MakeDirectories(directory));
  SEGUE_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(directory, "state.json"), AsBytes(json.ToText())));
  return SyncDirectory(checkpoint);
}

Result<CheckpointLock> CheckpointLock::Acquire(const std::string& checkpoint) {
  const std::string directory = StateDirectory(checkpoint);
  SEGUE_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = JoinPath(directory, "lock");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return ErrnoStatus("open", path);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor);
    return Unavailable("checkpoint '" + checkpoint + "' is being changed by another process");
  }
  return CheckpointLock(descriptor);
}

CheckpointLock::CheckpointLock(CheckpointLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

CheckpointLock& CheckpointLock::operator=(CheckpointLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

CheckpointLock::~CheckpointLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace segue
