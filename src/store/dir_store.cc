// SPDX-License-Identifier: Apache-2.0
//
// DirStore: reading, listing and deleting. What must hold: no memory is taken before the object's
// own size has been seen, and no absence is believed before its folders have been listed.
#include "store/dir_store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"

namespace segue {
namespace {

bool IsMissing(int error) { return error == -ENOENT || error == -ENOTDIR; }

// "/data/store//" as "/data/store", so that the folder above is found by the last '/'.
std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Makes the root's name, and those of the folders made above it, durable.
Status CreateRoot(FileSystem& files, const std::string& root) {
  const int made = MakeFolders(files, root);
  if (made < 0) return ErrorStatus(made, "create folder", root);
  std::string folder = root;
  for (int i = 0; i < made; ++i) {
    folder = DirectoryOf(folder);
    const int error = files.SyncFolder(folder);
    if (error < 0) return ErrorStatus(error, "sync folder", folder);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DirStore>> DirStore::Open(Options options, FileSystem& files) {
  const std::string root = WithoutTrailingSlashes(std::move(options.root));
  const auto in_context = [&](const Status& status) {
    return status.WithContext("store '" + options.url + "' should be a folder");
  };
  if (options.create) {
    const Status created = CreateRoot(files, root);
    if (!created.ok()) return in_context(created);
  }
  std::vector<FolderEntry> entries;
  int error = files.List(root, entries);
  if (IsMissing(error)) {
    // A root that is minutes old, made by another machine: see the header. At most once, because a
    // mistyped path should be answered at once.
    (void)files.List(DirectoryOf(root), entries);
    error = files.List(root, entries);
  }
  if (error == -ENOTDIR) return InvalidArgument("store '" + options.url + "' is not a folder");
  if (error < 0) return in_context(ErrorStatus(error, "list folder", root));
  return std::unique_ptr<DirStore>(new DirStore(files, {.url = options.url, .root = root}));
}

DirStore::DirStore(FileSystem& files, DirWriter::Place place)
    : files_(files), place_(std::move(place)) {}

std::string DirStore::Path(const std::string& name) const { return JoinPath(place_.root, name); }

std::string DirStore::Describe(const std::string& name) const {
  return "object '" + name + "' of store '" + place_.url + "'";
}

Result<std::unique_ptr<StoreWriter>> DirStore::StartWrite() {
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<StoreWriter> writer, DirWriter::Start(files_, place_));
  return writer;
}

Result<ByteVector> DirStore::Get(const std::string& name, std::uint64_t size_max) {
  ByteVector bytes;
  SEGUE_RETURN_IF_ERROR(Patiently(name, [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(const Object object, OpenObject(name));
    if (object.facts.size > size_max) {
      return ResourceExhausted(Describe(name) + " has " + std::to_string(object.facts.size) +
                               " bytes, the limit is " + std::to_string(size_max));
    }
    SEGUE_ASSIGN_OR_RETURN(bytes, Read(object, name, 0, object.facts.size));
    return {};
  }));
  return bytes;
}

Result<ByteVector> DirStore::GetRange(const std::string& name, std::uint64_t offset,
                                      std::uint64_t size) {
  ByteVector bytes;
  SEGUE_RETURN_IF_ERROR(Patiently(name, [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(const Object object, OpenObject(name));
    if (offset > object.facts.size || size > object.facts.size - offset) {
      return Corruption(Describe(name) + " has " + std::to_string(object.facts.size) + " bytes; " +
                        std::to_string(size) + " bytes from offset " + std::to_string(offset) +
                        " were expected");
    }
    SEGUE_ASSIGN_OR_RETURN(bytes, Read(object, name, offset, size));
    return {};
  }));
  return bytes;
}

Result<std::uint64_t> DirStore::Size(const std::string& name) {
  std::uint64_t size = 0;
  SEGUE_RETURN_IF_ERROR(Patiently(name, [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(const Object object, OpenObject(name));
    size = object.facts.size;
    return {};
  }));
  return size;
}

// Calls `attempt`, which opens and reads the object from scratch, until it succeeds or the failure
// is to be believed. What to do follows from the code: NotFound may be a remembered absence,
// Unavailable a handle that went stale.
Status DirStore::Patiently(const std::string& name, const std::function<Status()>& attempt) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  bool reopened = false;
  std::chrono::milliseconds wait{0};
  for (int retries = 0;;) {
    Status status = attempt();
    if (status.code() == StatusCode::kUnavailable && !std::exchange(reopened, true)) continue;
    if (status.code() != StatusCode::kNotFound) return status;
    if (retries == kMissingRetryCountMax) break;
    if (retries > 0) {
      wait = retries == 1 ? kMissingWaitFirst : wait * 2;
      files_.Wait(wait);
    }
    ++retries;
    SEGUE_RETURN_IF_ERROR(ListFoldersOf(name));
  }
  return NotFound(Describe(name) + " is not there: no file '" + Path(name) + "' after " +
                  std::to_string(kMissingRetryCountMax) + " listings of its folder");
}

Result<DirStore::Object> DirStore::OpenObject(const std::string& name) {
  const std::string path = Path(name);
  const auto fail = [&](int error, std::string_view action) {
    return ErrorStatus(error, action, path)
        .WithContext(Describe(name) + " should be a readable file");
  };
  Object object{.file = OpenFile(files_, files_.OpenForRead(path)), .facts = {}};
  if (object.file.get() < 0) return fail(object.file.get(), "open");
  const int error = files_.Examine(object.file.get(), object.facts);
  if (error < 0) return fail(error, "examine");
  if (object.facts.kind != FileKind::kFile) {
    return InvalidArgument(Describe(name) + " should be a file, '" + path +
                           "' is a folder or a device");
  }
  return object;
}

Result<ByteVector> DirStore::Read(const Object& object, const std::string& name,
                                  std::uint64_t offset, std::uint64_t size) {
  ByteVector bytes(size);
  SEGUE_RETURN_IF_ERROR(ReadInto(object, name, offset, bytes));
  return bytes;
}

Status DirStore::ReadInto(const Object& object, const std::string& name, std::uint64_t offset,
                          MutableByteSpan target) {
  for (std::uint64_t done = 0; done < target.size();) {
    const std::int64_t got = files_.ReadAt(object.file.get(), offset + done, target.subspan(done));
    if (got < 0) return ErrorStatus(static_cast<int>(got), "read", Path(name));
    if (got == 0) {
      return Corruption(Describe(name) + " ends at " + std::to_string(offset + done) +
                        " bytes; it had " + std::to_string(object.facts.size) +
                        " when it was opened");
    }
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

class DirStore::Reader : public ObjectReader {
 public:
  Reader(DirStore& store, std::string name, Object object)
      : store_(store), name_(std::move(name)), object_(std::move(object)) {
    const FileFacts& facts = object_.facts;
    tag_ = std::to_string(facts.size) + "-" + std::to_string(facts.modified_ns) + "-" +
           std::to_string(facts.number);
  }
  std::uint64_t size() const override { return object_.facts.size; }
  const std::string& tag() const override { return tag_; }
  Status Read(std::uint64_t offset, MutableByteSpan target) override {
    return store_.ReadInto(object_, name_, offset, target);
  }

 private:
  DirStore& store_;
  const std::string name_;
  Object object_;
  std::string tag_;
};

Result<std::unique_ptr<ObjectReader>> DirStore::OpenReader(const std::string& name) {
  std::unique_ptr<ObjectReader> reader;
  SEGUE_RETURN_IF_ERROR(Patiently(name, [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(Object object, OpenObject(name));
    reader = std::make_unique<Reader>(*this, name, std::move(object));
    return {};
  }));
  return reader;
}

// Lists every folder from the root to the object's: a fresh folder's name may be hidden as well.
// The first that is missing ends it; only the root has to be there.
Status DirStore::ListFoldersOf(const std::string& name) {
  std::vector<FolderEntry> entries;
  const int error = files_.List(place_.root, entries);
  if (error < 0) {
    return ErrorStatus(error, "list folder", place_.root)
        .WithContext("store '" + place_.url + "' should be a folder");
  }
  for (std::size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    if (files_.List(Path(name.substr(0, slash)), entries) < 0) break;
  }
  return {};
}

Result<std::vector<std::string>> DirStore::List(const std::string& prefix) {
  return ListKind(prefix, FileKind::kFile);
}

Result<std::vector<std::string>> DirStore::ListFolders(const std::string& prefix) {
  return ListKind(prefix, FileKind::kFolder);
}

Result<std::vector<std::string>> DirStore::ListKind(const std::string& prefix, FileKind kind) {
  if (!prefix.empty()) SEGUE_RETURN_IF_ERROR(CheckObjectName(prefix));
  const std::string folder = prefix.empty() ? place_.root : Path(prefix);
  std::vector<FolderEntry> entries;
  int error = files_.List(folder, entries);
  if (IsMissing(error) || error == -ESTALE) {
    SEGUE_RETURN_IF_ERROR(ListFoldersOf(prefix));
    error = files_.List(folder, entries);
  }
  if (IsMissing(error) && !prefix.empty()) return std::vector<std::string>();
  if (error < 0) {
    return ErrorStatus(error, "list folder", folder).WithContext("store '" + place_.url + "'");
  }
  std::vector<std::string> names;
  for (FolderEntry& entry : entries) {
    // Kinds that the file system does not tell are shown: better a name that fails to open than a
    // version that nobody sees. Temporaries and NFS's ".nfs..." files are no object names.
    const bool may_be = entry.kind == kind || entry.kind == FileKind::kUnknown;
    if (may_be && CheckObjectName(entry.name).ok()) names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  // A folder that changes while it is read may name an entry twice.
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Status DirStore::Delete(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  const std::string path = Path(name);
  int error = files_.Unlink(path);
  if (IsMissing(error) || error == -ESTALE) {
    SEGUE_RETURN_IF_ERROR(ListFoldersOf(name));
    error = files_.Unlink(path);
  }
  if (error < 0 && !IsMissing(error)) {
    return ErrorStatus(error, "remove", path).WithContext(Describe(name) + " should be deletable");
  }
  // Durable in the order of the calls: a manifest that was deleted before its payloads must not
  // come back alone after a power failure.
  const std::string folder = DirectoryOf(path);
  error = files_.SyncFolder(folder);
  if (error < 0 && !IsMissing(error) && error != -ESTALE) {
    return ErrorStatus(error, "sync folder", folder).WithContext(Describe(name));
  }
  RemoveEmptyFolders(folder);
  return {};
}

// Up to the root, not including it. Any failure ends it: the folder is in use, or another deleter
// was faster.
void DirStore::RemoveEmptyFolders(std::string folder) {
  while (folder.size() > place_.root.size() && files_.RemoveFolder(folder) == 0) {
    folder = DirectoryOf(folder);
  }
}

Status DirStore::RemoveStaleTemporaries(std::chrono::seconds age) {
  const std::string folder = Path(std::string(kTemporaryFolder));
  std::vector<FolderEntry> entries;
  const int error = files_.List(folder, entries);
  if (IsMissing(error)) return {};
  if (error < 0) return ErrorStatus(error, "list folder", folder);
  // A file written just now tells what the file system's clock says; ours may be off.
  SEGUE_ASSIGN_OR_RETURN(const auto probe, DirWriter::Start(files_, place_));
  SEGUE_RETURN_IF_ERROR(probe->Append(AsBytes("now")));
  SEGUE_ASSIGN_OR_RETURN(const std::int64_t now_ns, probe->ModifiedNs());
  Status failure;
  for (const FolderEntry& entry : entries) {
    // NFS keeps a file that someone has open as ".nfs...": not ours to remove.
    if (entry.name.starts_with('.')) continue;
    const std::string temporary = JoinPath(folder, entry.name);
    const Result<bool> stale = IsStale(temporary, now_ns, age);
    if (!stale.ok()) failure = stale.status();
    if (!stale.ok() || !stale.value()) continue;
    const int removed = files_.Unlink(temporary);
    if (removed < 0 && !IsMissing(removed)) failure = ErrorStatus(removed, "remove", temporary);
  }
  return failure;
}

Result<bool> DirStore::IsStale(const std::string& temporary, std::int64_t now_ns,
                               std::chrono::seconds age) {
  const OpenFile file(files_, files_.OpenForRead(temporary));
  if (IsMissing(file.get()) || file.get() == -ESTALE) return false;
  FileFacts facts;
  const int error = file.get() < 0 ? file.get() : files_.Examine(file.get(), facts);
  if (error < 0) return ErrorStatus(error, "examine", temporary);
  const std::int64_t age_s = (now_ns - facts.modified_ns) / 1'000'000'000;
  return facts.kind == FileKind::kFile && age_s >= age.count();
}

}  // namespace segue
