// SPDX-License-Identifier: Apache-2.0
//
// What the tests of src/store share: a folder that goes away, child processes, and a file system
// that misbehaves in the ways that NFS does. Tests only. FaultyFileSystem is for one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/random.h"
#include "store/dir_store.h"

namespace segue {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = ::testing::TempDir() + "/segue_store_XXXXXX";
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() { EXPECT_TRUE(RemoveTree(path_).ok()); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> Temporaries() const {
    const auto names = ListDirectory(*this / ".tmp");
    return names.ok() ? names.value() : std::vector<std::string>();
  }
  std::unique_ptr<DirStore> OpenDirStore(FileSystem& files = PosixFileSystem::Instance()) const {
    return DirStore::Open({.url = "dir:" + path_, .root = path_, .create = true}, files).value();
  }

 private:
  std::string path_;
};

// Bytes that tell their seed and position, so that mixed or cut content is seen.
inline ByteVector Pattern(std::uint64_t seed, std::size_t size) {
  ByteVector bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = std::byte(Mix64(seed << 32 | i / 8) >> i % 8 * 8);
  }
  return bytes;
}

inline void WriteRaw(const std::string& path, std::string_view text) {
  ASSERT_TRUE(MakeDirectories(DirectoryOf(path)).ok());
  OutputFile file = OutputFile::Create(path).value();
  ASSERT_TRUE(file.Append(AsBytes(text)).ok());
}

// Runs `work` in a child that is a copy of this process; its result is the exit status. The child
// leaves without destructors or test output.
inline pid_t Fork(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  EXPECT_GT(child, 0);
  return child;
}

// The exit status, or minus the signal that ended the child.
inline int Join(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// One-way signals between processes; readable once for every byte written.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void Signal() {
    const char byte = 0;
    EXPECT_EQ(::write(ends_[1], &byte, 1), 1);
  }
  void Await() {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

class FaultyFileSystem : public PosixFileSystem {
 public:
  // What was called, as "link /a/x /a/y".
  std::vector<std::string> calls;
  // Time as the waits tell it; nothing sleeps.
  std::chrono::milliseconds waited{0};
  // Called before every read, with the number of reads before it.
  std::function<void(int)> before_read = [](int) {};

  // The next call of that name fails; each fault is used once, in order.
  void FailBefore(const std::string& call, int error) { faults_[call].push_back({error, false}); }
  // The next call of that name is made, and fails all the same: a lost answer.
  void FailAfter(const std::string& call, int error) { faults_[call].push_back({error, true}); }

  // Case G1: `path`, and what is below it, seems absent for 5 s, or until the folder above has been
  // listed `listings` times.
  void Hide(const std::string& path, int listings = 1) { hidden_[path] = listings; }

  int OpenForRead(const std::string& path) override {
    return Faulty("open", path,
                  [&] { return IsHidden(path) ? -ENOENT : PosixFileSystem::OpenForRead(path); });
  }
  int CreateNew(const std::string& path) override {
    return Faulty("create", path, [&] { return PosixFileSystem::CreateNew(path); });
  }
  std::int64_t ReadAt(int descriptor, std::uint64_t offset, MutableByteSpan target) override {
    before_read(read_count_++);
    return Faulty("read", "", [&] { return PosixFileSystem::ReadAt(descriptor, offset, target); });
  }
  std::int64_t Write(int descriptor, ByteSpan bytes) override {
    return Faulty("write", "", [&] { return PosixFileSystem::Write(descriptor, bytes); });
  }
  int Sync(int descriptor) override {
    return Faulty("sync", "", [&] { return PosixFileSystem::Sync(descriptor); });
  }
  int Close(int descriptor) override {
    return Faulty("close", "", [&] { return PosixFileSystem::Close(descriptor); });
  }
  int Link(const std::string& source, const std::string& target) override {
    return Faulty("link", target, [&] { return PosixFileSystem::Link(source, target); });
  }
  int Unlink(const std::string& path) override {
    return Faulty("unlink", path,
                  [&] { return IsHidden(path) ? -ENOENT : PosixFileSystem::Unlink(path); });
  }
  int MakeFolder(const std::string& path) override {
    return Faulty("mkdir", path, [&] { return PosixFileSystem::MakeFolder(path); });
  }
  int SyncFolder(const std::string& path) override {
    return Faulty("sync_folder", path, [&] { return PosixFileSystem::SyncFolder(path); });
  }
  int List(const std::string& path, std::vector<FolderEntry>& entries) override {
    return Faulty("list", path, [&] { return ListWithHidden(path, entries); });
  }
  void Wait(std::chrono::milliseconds duration) override { waited += duration; }

 private:
  struct Fault {
    int error;
    bool after;
  };

  template <typename Call>
  auto Faulty(const std::string& name, const std::string& path, Call call) -> decltype(call()) {
    calls.push_back(path.empty() ? name : name + " " + path);
    std::vector<Fault>& faults = faults_[name];
    if (faults.empty()) return call();
    const Fault fault = faults.front();
    faults.erase(faults.begin());
    if (fault.after) (void)call();
    return -fault.error;
  }

  bool IsHidden(const std::string& path) const {
    if (waited >= std::chrono::seconds(5)) return false;
    return std::any_of(hidden_.begin(), hidden_.end(), [&](const auto& hidden) {
      return path == hidden.first || path.starts_with(hidden.first + "/");
    });
  }

  int ListWithHidden(const std::string& path, std::vector<FolderEntry>& entries) {
    if (IsHidden(path)) return -ENOENT;
    const int error = PosixFileSystem::List(path, entries);
    for (auto& [hidden, listings] : hidden_) listings -= DirectoryOf(hidden) == path ? 1 : 0;
    std::erase_if(hidden_, [](const auto& hidden) { return hidden.second <= 0; });
    std::erase_if(entries,
                  [&](const FolderEntry& entry) { return IsHidden(JoinPath(path, entry.name)); });
    return error;
  }

  std::map<std::string, std::vector<Fault>> faults_;
  std::map<std::string, int> hidden_;
  int read_count_ = 0;
};

}  // namespace segue
