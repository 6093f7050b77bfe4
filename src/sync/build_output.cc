// SPDX-License-Identifier: Apache-2.0
//
// Build output: shard by shard in the order of the layout's offsets, so that files are written
// front to back. Two processes never build in one directory: its `.segue/lock` is held, as for a
// checkpoint that is changed in place.
#include "sync/build_output.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/out_of_memory.h"
#include "sync/checkpoint_state.h"

namespace segue {
namespace {

// How often the directory is made anew when another process removes it meanwhile.
constexpr int kLockTries = 20;

// One whole file, durable but for its name.
Status WriteWhole(const std::string& path, ByteSpan bytes) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  SEGUE_RETURN_IF_ERROR(file.Append(bytes));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

// Number of the tensor in the plan's (and a checkpoint's) order.
std::optional<std::size_t> FindTensor(const Plan& plan, const TensorSpec& spec) {
  const auto& tensors = plan.tensors();
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), spec.name,
      [](const PlanTensor& tensor, const std::string& name) { return tensor.spec.name < name; });
  if (found == tensors.end() || !(found->spec == spec)) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

Status CheckIsNew(const std::string& output) {
  if (!FileExists(output)) return {};
  return InvalidArgument("output '" + output + "' exists; name a directory that does not");
}

// Everything but the lock.
Status RemoveContents(const std::string& part) {
  for (const std::string& directory : {StateDirectory(part), part}) {
    const std::string kept = directory == part ? kStateDirectoryName : kLockName;
    SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(directory));
    for (const std::string& name : names) {
      if (name != kept) SEGUE_RETURN_IF_ERROR(RemoveTree(JoinPath(directory, name)));
    }
  }
  return {};
}

bool IsOtherFile(const std::string& name) {
  return !name.starts_with('.') && !name.ends_with(".safetensors") && name != kIndexFileName;
}

// What Segue itself accounts for: shards, index and its own folder.
bool IsOwnFile(const Checkpoint& base, const std::string& name) {
  const auto shards = base.shards();
  const auto is_shard = [&name](const Shard& shard) { return shard.name == name; };
  return name == kIndexFileName || StateDirectory("") == name ||
         std::any_of(shards.begin(), shards.end(), is_shard);
}

}  // namespace

Result<OutputBuilder> OutputBuilder::Start(const std::string& output) {
  OutputBuilder builder;
  builder.output_ = output;
  while (builder.output_.size() > 1 && builder.output_.back() == '/') builder.output_.pop_back();
  const std::string name = builder.output_.substr(builder.output_.rfind('/') + 1);
  if (name == "." || name == "..") {
    return InvalidArgument("output '" + output + "' ends in '" + name +
                           "'; name the new directory itself");
  }
  SEGUE_RETURN_IF_ERROR(CheckIsNew(builder.output_));
  const std::string part = builder.output_ + ".segue-part";
  SEGUE_RETURN_IF_ERROR(MakeDirectories(DirectoryOf(builder.output_)));
  for (int tries = 0; !builder.lock_; ++tries) {
    SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(part));
    Result<CheckpointLock> lock = CheckpointLock::Acquire(part);
    // Another process may be removing what it has built, directory and all.
    if (lock.status().code() == StatusCode::kNotFound && tries < kLockTries) continue;
    if (lock.status().code() == StatusCode::kUnavailable) {
      return Unavailable("output '" + output + "' is being built by another process");
    }
    if (!lock.ok()) return lock.status();
    builder.lock_ = std::move(lock).value();
  }
  builder.part_ = part;
  SEGUE_RETURN_IF_ERROR(CheckIsNew(builder.output_));
  SEGUE_RETURN_IF_ERROR(RemoveContents(part));
  return builder;
}

// What stays for want of memory the next apply to the same output replaces.
OutputBuilder::~OutputBuilder() {
  (void)CatchOutOfMemory([this]() -> Status {
    Remove();
    return {};
  });
}

void OutputBuilder::Remove() const {
  if (part_.empty() || !lock_->IsInPlace() || !RemoveContents(part_).ok()) return;
  // One by one: what another process makes from here on stays.
  const std::string state = StateDirectory(part_);
  std::error_code ignored;
  for (const std::string& path : {JoinPath(state, kLockName), state, part_}) {
    if (!std::filesystem::remove(path, ignored)) return;
  }
}

OutputBuilder::OutputBuilder(OutputBuilder&& other) noexcept { *this = std::move(other); }

OutputBuilder& OutputBuilder::operator=(OutputBuilder&& other) noexcept {
  std::swap(output_, other.output_);
  std::swap(part_, other.part_);
  std::swap(lock_, other.lock_);
  return *this;
}

Status OutputBuilder::WriteShard(const Checkpoint& base, const LayoutShard& shard,
                                 const Plan& plan) {
  const std::string path = JoinPath(part_, shard.name);
  SEGUE_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                         ParseSafetensorsHeader(AsBytes(shard.header_json), path));
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  ByteVector length;
  AppendLittle<std::uint64_t>(length, shard.header_json.size());
  SEGUE_RETURN_IF_ERROR(file.Append(length));
  SEGUE_RETURN_IF_ERROR(file.Append(AsBytes(shard.header_json)));
  for (const SafetensorsEntry& entry : header.entries) {
    const auto tensor = FindTensor(plan, entry.spec);
    if (!tensor) {
      return Corruption("layout shard '" + shard.name + "' holds tensor '" + entry.spec.name +
                        "' as " + DescribeTensor(entry.spec) + ", which the plan does not");
    }
    SEGUE_RETURN_IF_ERROR(file.Append(base.TensorBytes(*tensor)));
  }
  return file.Close();
}

Status OutputBuilder::CopyOtherFiles(const Checkpoint& base, std::vector<std::string>& warnings) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(base.directory()));
  std::string left_out;
  for (const std::string& name : names) {
    if (IsOwnFile(base, name)) continue;
    const std::string path = JoinPath(base.directory(), name);
    std::error_code error;
    if (!IsOtherFile(name) || !std::filesystem::is_regular_file(path, error)) {
      left_out += (left_out.empty() ? "'" : ", '") + name + "'";
      continue;
    }
    SEGUE_ASSIGN_OR_RETURN(const MappedFile source, MappedFile::Open(path));
    SEGUE_RETURN_IF_ERROR(WriteWhole(JoinPath(part_, name), source.bytes()));
  }
  if (!left_out.empty()) {
    warnings.push_back("not copied to the output (subdirectories, hidden files, other weights): " +
                       left_out);
  }
  return {};
}

Status OutputBuilder::CopyBase(const Checkpoint& base, const Layout& layout, const Plan& plan) {
  for (const LayoutShard& shard : layout.shards()) {
    SEGUE_RETURN_IF_ERROR(WriteShard(base, shard, plan));
  }
  if (!layout.index_json().empty()) {
    SEGUE_RETURN_IF_ERROR(
        WriteWhole(JoinPath(part_, kIndexFileName), AsBytes(layout.index_json())));
  }
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint written, Checkpoint::Open(part_));
  const std::size_t tensor_count = written.tensors().size();
  if (tensor_count == plan.tensors().size()) return {};
  return Corruption("the target layout holds " + std::to_string(tensor_count) +
                    " tensors, the plan has " + std::to_string(plan.tensors().size()));
}

Result<LiveFiles> OutputBuilder::Open() {
  std::vector<std::string> copied;
  return OpenLiveFiles(part_, copied);
}

Status OutputBuilder::Finish() {
  SEGUE_RETURN_IF_ERROR(SyncDirectory(part_));
  if (!lock_->IsInPlace()) {
    return Unavailable("'" + part_ + "' was removed or replaced while it was built");
  }
  SEGUE_RETURN_IF_ERROR(RenameToNew(part_, output_));
  part_.clear();
  return SyncDirectory(DirectoryOf(output_));
}

}  // namespace segue
