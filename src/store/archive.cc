// SPDX-License-Identifier: Apache-2.0
//
// Archive: writing front to back, reading by an index of all headers.
#include "store/archive.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/out_of_memory.h"

namespace segue {
namespace {

constexpr std::uint64_t kCopyPieceSize = 8ull << 20;

std::uint64_t Padded(std::uint64_t size) {
  return (size + kTarBlockSize - 1) / kTarBlockSize * kTarBlockSize;
}

bool IsZero(ByteSpan block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{}; });
}

Status ReadOnly(const std::string& url) {
  return Unsupported("store '" + url + "' is one file: it can be read and not be written");
}

}  // namespace

ArchiveWriter::ArchiveWriter(std::string path, OutputFile file)
    : path_(std::move(path)), temporary_(file.path()), file_(std::move(file)) {}

Result<ArchiveWriter> ArchiveWriter::Create(const std::string& path) {
  if (FileExists(path)) return InvalidArgument("'" + path + "' exists already");
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path + ".segue-part"));
  return ArchiveWriter(path, std::move(file));
}

ArchiveWriter::~ArchiveWriter() {
  if (!temporary_.empty()) (void)CatchOutOfMemory([this] { return RemoveFile(temporary_); });
}

Status ArchiveWriter::AddHeader(const std::string& name, std::uint64_t size) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  SEGUE_ASSIGN_OR_RETURN(const ByteVector header, MakeTarHeader(name, size));
  return file_.Append(header);
}

Status ArchiveWriter::AddPadding(std::uint64_t size) {
  const ByteVector zeros(Padded(size) - size);
  return file_.Append(zeros);
}

Status ArchiveWriter::Add(const std::string& name, ByteSpan bytes) {
  SEGUE_RETURN_IF_ERROR(AddHeader(name, bytes.size()));
  SEGUE_RETURN_IF_ERROR(file_.Append(bytes));
  return AddPadding(bytes.size());
}

Status ArchiveWriter::AddFile(const std::string& name, const std::string& source) {
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, FileSize(source));
  SEGUE_RETURN_IF_ERROR(AddHeader(name, size));
  for (std::uint64_t offset = 0; offset < size; offset += kCopyPieceSize) {
    SEGUE_ASSIGN_OR_RETURN(const ByteVector piece,
                           ReadFileRange(source, offset, std::min(kCopyPieceSize, size - offset)));
    SEGUE_RETURN_IF_ERROR(file_.Append(piece));
  }
  return AddPadding(size);
}

Status ArchiveWriter::Finish() {
  const ByteVector end(2 * kTarBlockSize);
  SEGUE_RETURN_IF_ERROR(file_.Append(end));
  SEGUE_RETURN_IF_ERROR(file_.Sync());
  SEGUE_RETURN_IF_ERROR(file_.Close());
  SEGUE_RETURN_IF_ERROR(RenameToNew(temporary_, path_));
  temporary_.clear();
  return SyncDirectory(DirectoryOf(path_));
}

Result<std::unique_ptr<ArchiveStore>> ArchiveStore::Open(const std::string& url,
                                                         const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t file_size, FileSize(path));
  std::map<std::string, Entry> entries;
  const auto refuse = [&](const std::string& reason) {
    return Corruption("store '" + url + "': " + reason);
  };
  std::uint64_t offset = 0;
  for (;;) {
    if (file_size - offset < kTarBlockSize) return refuse("the archive has no end");
    SEGUE_ASSIGN_OR_RETURN(const ByteVector block, ReadFileRange(path, offset, kTarBlockSize));
    if (IsZero(block)) break;
    const Result<TarHeader> header = ParseTarHeader(block);
    if (!header.ok()) return header.status().WithContext("store '" + url + "'");
    offset += kTarBlockSize;
    if (header->size > file_size - offset || Padded(header->size) > file_size - offset) {
      return refuse("entry '" + header->name + "' reaches beyond the file");
    }
    if (!header->is_folder) {
      const Status named = CheckObjectName(header->name);
      if (!named.ok()) return refuse(named.message());
      if (!entries.emplace(header->name, Entry{offset, header->size}).second) {
        return refuse("entry '" + header->name + "' is there twice");
      }
      if (entries.size() > limits::kArchiveEntryCountMax) {
        return ResourceExhausted("store '" + url + "' has more than " +
                                 std::to_string(limits::kArchiveEntryCountMax) + " entries");
      }
    }
    offset += Padded(header->size);
  }
  return std::unique_ptr<ArchiveStore>(new ArchiveStore(url, path, std::move(entries)));
}

Result<ArchiveStore::Entry> ArchiveStore::Find(const std::string& name) const {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  return NotFound("store '" + url_ + "' has no object '" + name + "'");
}

Result<ByteVector> ArchiveStore::Get(const std::string& name, std::uint64_t size_max) {
  SEGUE_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  if (entry.size > size_max) {
    return ResourceExhausted("object '" + name + "' has " + std::to_string(entry.size) +
                             " bytes, the limit is " + std::to_string(size_max));
  }
  return ReadFileRange(path_, entry.offset, entry.size);
}

Result<ByteVector> ArchiveStore::GetRange(const std::string& name, std::uint64_t offset,
                                          std::uint64_t size) {
  SEGUE_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  if (offset > entry.size || size > entry.size - offset) {
    return Corruption("object '" + name + "' ends at byte " + std::to_string(entry.size) +
                      ", before byte " + std::to_string(offset) + " + " + std::to_string(size));
  }
  return ReadFileRange(path_, entry.offset + offset, size);
}

Result<std::uint64_t> ArchiveStore::Size(const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  return entry.size;
}

// What follows `prefix` and '/' in every name that begins so, in order.
std::vector<std::string> ArchiveStore::Below(const std::string& prefix) const {
  const std::string start = prefix.empty() ? "" : prefix + "/";
  std::vector<std::string> rests;
  for (auto entry = entries_.lower_bound(start);
       entry != entries_.end() && entry->first.starts_with(start); ++entry) {
    rests.push_back(entry->first.substr(start.size()));
  }
  return rests;
}

Result<std::vector<std::string>> ArchiveStore::List(const std::string& prefix) {
  std::vector<std::string> names = Below(prefix);
  std::erase_if(names, [](const std::string& name) { return name.find('/') != std::string::npos; });
  return names;
}

Result<std::vector<std::string>> ArchiveStore::ListFolders(const std::string& prefix) {
  std::vector<std::string> folders;
  for (const std::string& rest : Below(prefix)) {
    const std::size_t slash = rest.find('/');
    if (slash == std::string::npos) continue;
    const std::string folder = rest.substr(0, slash);
    if (folders.empty() || folders.back() != folder) folders.push_back(folder);
  }
  return folders;
}

Status ArchiveStore::RemoveStaleTemporaries(std::chrono::seconds) { return {}; }

Result<std::unique_ptr<StoreWriter>> ArchiveStore::StartWrite() { return ReadOnly(url_); }

Status ArchiveStore::Delete(const std::string&) { return ReadOnly(url_); }

}  // namespace segue
