// SPDX-License-Identifier: Apache-2.0
//
// S3Store: a store below a prefix of a bucket, on any S3 server. docs/protocol.md, section 11. What
// must hold: nothing but the server's own condition decides who put an object first; an upload in
// parts is seen whole or not at all; an ETag is never taken for a hash (case G6).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/http_read.h"
#include "store/s3_client.h"
#include "store/store.h"

namespace segue {

// The hash of the whole object, beside it: S3's own ETag says nothing of the content.
inline constexpr const char* kS3HashField = "x-amz-meta-segue-sha256";
// An object of no bytes beside the others, by which a server is tried; no object name begins so.
inline constexpr const char* kS3ProbeName = ".segue-condition";

class S3Store : public Store {
 public:
  // Lists the prefix, so that a wrong bucket or key is told at once.
  static Result<std::unique_ptr<S3Store>> Open(const S3Options& options);

  Result<std::unique_ptr<StoreWriter>> StartWrite() override;
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override;
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  Status Delete(const std::string& name) override;
  // Aborts uploads in parts below the prefix that began that long ago.
  Status RemoveStaleTemporaries(std::chrono::seconds age) override;
  const std::string& url() const override { return client_.options().url; }

  // For the writer.
  S3Client& client() { return client_; }
  std::string Describe(const std::string& name) const;
  // Whether the server honours `If-None-Match: *`; asked once. Unsupported where it does not.
  Status CheckCondition();

 private:
  explicit S3Store(const S3Options& options) : client_(options) {}

  struct Page {
    std::vector<std::string> objects;
    std::vector<std::string> folders;
    std::string next;  // Empty: this was the last.
  };

  HttpObject ObjectToRead(const std::string& name);
  Result<std::vector<std::string>> ListKind(const std::string& prefix,
                                            std::vector<std::string> Page::*kind);
  Result<Page> ListPage(const std::string& folder, const std::string& token);
  Status TryCondition();

  S3Client client_;
  std::mutex mutex_;
  bool condition_checked_ = false;
};

// Seconds since 1970 of "2026-11-30T01:02:03.000Z"; nothing for another form.
std::optional<std::int64_t> ParseS3Time(std::string_view text);

}  // namespace segue
