// SPDX-License-Identifier: Apache-2.0
//
// Archive: a store in one file, a tar archive that any tool can list (docs/format.md, "Store in one
// file"). It is written once, front to back, and read like any other store.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "store/store.h"

namespace segue {

class ArchiveWriter {
 public:
  // Writes beside `path`, which must not exist; Finish() gives it its name.
  static Result<ArchiveWriter> Create(const std::string& path);

  ArchiveWriter(ArchiveWriter&&) = default;
  // Without Finish() nothing is left.
  ~ArchiveWriter();

  Status Add(const std::string& name, ByteSpan bytes);
  // The bytes of another file, in pieces.
  Status AddFile(const std::string& name, const std::string& source);
  // Durable, under its name.
  Status Finish();

 private:
  ArchiveWriter(std::string path, OutputFile file);
  Status AddHeader(const std::string& name, std::uint64_t size);
  Status AddPadding(std::uint64_t size);

  std::string path_;
  std::string temporary_;  // Empty once it has its name.
  OutputFile file_;
};

// Read-only; thread-safe.
class ArchiveStore final : public Store {
 public:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  // Reads every header. Corruption, naming the entry, for what no archive of ours can hold.
  static Result<std::unique_ptr<ArchiveStore>> Open(const std::string& url,
                                                    const std::string& path);

  Result<std::unique_ptr<StoreWriter>> StartWrite() override;
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override;
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  Status Delete(const std::string& name) override;
  Status RemoveStaleTemporaries(std::chrono::seconds age) override;
  const std::string& url() const override { return url_; }

 private:
  ArchiveStore(std::string url, std::string path, std::map<std::string, Entry> entries)
      : url_(std::move(url)), path_(std::move(path)), entries_(std::move(entries)) {}
  Result<Entry> Find(const std::string& name) const;
  std::vector<std::string> Below(const std::string& prefix) const;

  const std::string url_;
  const std::string path_;
  const std::map<std::string, Entry> entries_;
};

// What a tar header says; for tests and the fuzz target.
struct TarHeader {
  std::string name;
  std::uint64_t size = 0;
  bool is_folder = false;
};

inline constexpr std::uint64_t kTarBlockSize = 512;

// `block` has kTarBlockSize bytes and is not all zero.
Result<TarHeader> ParseTarHeader(ByteSpan block);
// InvalidArgument where the name does not fit: more than 100 bytes that cannot be cut at a '/'.
Result<ByteVector> MakeTarHeader(const std::string& name, std::uint64_t size);

}  // namespace segue
