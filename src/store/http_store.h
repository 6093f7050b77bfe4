// SPDX-License-Identifier: Apache-2.0
//
// HttpStore: a store that `segue store` serves, over http:// or https://. docs/protocol.md, section
// 9, has the requests. What must hold: the token travels in a header alone and appears in no
// message; an object is put with a condition, its size and its hash, so that the server can refuse
// all but the whole; a put whose answer was lost is told apart from one that came too late.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/http_client.h"
#include "store/http_read.h"
#include "store/http_url.h"
#include "store/store.h"

namespace segue {

class HttpStore : public Store {
 public:
  struct Options {
    std::string url;
    std::string token;  // Bearer token; empty: none is sent.
    // Sent with every request.
    std::vector<std::string> fields;
    // Relays have none: then nothing is asked for before the first object.
    bool has_listing = true;
    HttpClient::Options client;
  };

  // Asks the server for its listing, so that a wrong address or token is told at once.
  static Result<std::unique_ptr<HttpStore>> Open(const Options& options);

  Result<std::unique_ptr<StoreWriter>> StartWrite() override;
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override;
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  Status Delete(const std::string& name) override;
  // The server does it for itself.
  Status RemoveStaleTemporaries(std::chrono::seconds) override { return {}; }
  const std::string& url() const override { return options_.url; }

 private:
  class Writer;

  HttpStore(const Options& options, HttpUrl url)
      : options_(options), url_(std::move(url)), client_(options.client) {}

  HttpRequest MakeRequest(const std::string& method, const std::string& path,
                          const std::vector<std::string>& fields) const;
  HttpObject ObjectToRead(const std::string& name);
  Result<std::vector<std::string>> ListKind(const std::string& prefix, const char* kind);
  std::string Describe(const std::string& name) const;

  const Options options_;
  const HttpUrl url_;
  HttpClient client_;
};

}  // namespace segue
