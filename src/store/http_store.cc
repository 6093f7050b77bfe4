// SPDX-License-Identifier: Apache-2.0
//
// HttpStore: requests of docs/protocol.md, section 9.
#include "store/http_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/parse_json.h"
#include "segue/token.h"
#include "store/spool.h"

namespace segue {
namespace {

using Json = nlohmann::json;

// After an answer that was lost, an object up to this size is read back and compared.
constexpr std::uint64_t kCompareSizeMax = 32ull << 20;

// Objects and folders, and what a later server may say besides.
constexpr std::uint64_t kListingValuesMax = 2 * limits::kStoreEntryCountMax + 1'000;

// The names of one kind in a listing.
Result<std::vector<std::string>> ParseListing(ByteSpan text, const char* kind) {
  const auto refuse = [&](const std::string& why) {
    return Corruption("the server's listing " + why + "; is this address that of a segue store?");
  };
  const auto parsed = ParseJson<Json>(AsText(text), kListingValuesMax);
  if (!parsed.ok()) return refuse(parsed.status().message());
  const Json& listing = parsed.value();
  if (!listing.is_object() || !listing.contains("objects") || !listing.contains("folders")) {
    return refuse("is not JSON with 'objects' and 'folders'");
  }
  const Json& entries = listing.at(kind);
  if (!entries.is_array() || entries.size() > limits::kStoreEntryCountMax) {
    return refuse("has no list of '" + std::string(kind) + "', or too long a one");
  }
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const Json& entry : entries) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : "";
    if (!CheckObjectName(name).ok() || name.find('/') != std::string::npos) {
      return refuse("has an entry that is no name");
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Result<std::unique_ptr<HttpStore>> HttpStore::Open(const Options& options) {
  SEGUE_ASSIGN_OR_RETURN(HttpUrl url, ParseHttpUrl(options.url));
  if (!options.token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(options.token));
  std::unique_ptr<HttpStore> store(new HttpStore(options, std::move(url)));
  if (options.has_listing) SEGUE_RETURN_IF_ERROR(store->List("").status());
  return store;
}

std::string HttpStore::Describe(const std::string& name) const {
  return "object '" + name + "' of store '" + options_.url + "'";
}

HttpRequest HttpStore::MakeRequest(const std::string& method, const std::string& path,
                                   const std::vector<std::string>& fields) const {
  HttpRequest request;
  request.method = method;
  request.url = url_.Origin() + path;
  request.fields = options_.fields;
  request.fields.insert(request.fields.end(), fields.begin(), fields.end());
  if (!options_.token.empty()) request.fields.push_back("Authorization: Bearer " + options_.token);
  return request;
}

HttpObject HttpStore::ObjectToRead(const std::string& name) {
  return {client_,
          [this, path = url_.path + "/" + name](const std::vector<std::string>& fields) {
            return MakeRequest("GET", path, fields);
          },
          Describe(name)};
}

Result<ByteVector> HttpStore::Get(const std::string& name, std::uint64_t size_max) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  return ReadHttpObject(ObjectToRead(name), size_max);
}

Result<ByteVector> HttpStore::GetRange(const std::string& name, std::uint64_t offset,
                                       std::uint64_t size) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  if (size > 0) return ReadHttpRange(ObjectToRead(name), offset, size);
  // HTTP has no range of nothing.
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t total, Size(name));
  if (offset <= total) return ByteVector();
  return Corruption(Describe(name) + " has " + std::to_string(total) + " bytes; offset " +
                    std::to_string(offset) + " was expected in it");
}

Result<std::uint64_t> HttpStore::Size(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  const HttpReply reply = PerformPatiently(client_, [&] {
    return MakeRequest("HEAD", url_.path + "/" + name, {"Accept-Encoding: identity"});
  });
  SEGUE_RETURN_IF_ERROR(StatusOfReply(reply, Describe(name)));
  if (const auto size = reply.head.ContentLength()) return *size;
  return Corruption(Describe(name) + ": the server does not state its size");
}

Result<std::vector<std::string>> HttpStore::List(const std::string& prefix) {
  return ListKind(prefix, "objects");
}

Result<std::vector<std::string>> HttpStore::ListFolders(const std::string& prefix) {
  return ListKind(prefix, "folders");
}

Result<std::vector<std::string>> HttpStore::ListKind(const std::string& prefix, const char* kind) {
  if (!prefix.empty()) SEGUE_RETURN_IF_ERROR(CheckObjectName(prefix));
  const std::string path = url_.path + "/" + (prefix.empty() ? "" : prefix + "/");
  const HttpObject listing{
      client_,
      [&](const std::vector<std::string>& fields) { return MakeRequest("GET", path, fields); },
      DescribeListing(prefix, options_.url)};
  SEGUE_ASSIGN_OR_RETURN(const ByteVector text, ReadHttpObject(listing, limits::kStoreListSizeMax));
  Result<std::vector<std::string>> names = ParseListing(text, kind);
  if (!names.ok()) return names.status().WithContext(listing.what);
  return names;
}

Status HttpStore::Delete(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  const HttpReply reply =
      PerformPatiently(client_, [&] { return MakeRequest("DELETE", url_.path + "/" + name, {}); });
  if (reply.head.code == 404) return {};
  return StatusOfReply(reply, Describe(name));
}

class HttpStore::Writer : public StoreWriter {
 public:
  explicit Writer(HttpStore& store) : store_(store) {}

  Status Append(ByteSpan bytes) override { return spool_.Append(bytes); }

  Result<PutOutcome> Commit(const std::string& name) override {
    SEGUE_CHECK(!std::exchange(spent_, true));
    SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
    SEGUE_RETURN_IF_ERROR(spool_.Append({}));  // An earlier failure: half an object.
    const std::string hash = spool_.Finish().ToHex();
    bool ambiguous = false;
    const auto make = [&] {
      HttpRequest request = store_.MakeRequest(
          "PUT", store_.url_.path + "/" + name,
          {"If-None-Match: *", "Content-Type: application/octet-stream", "Segue-SHA256: " + hash});
      request.has_body = true;
      request.body_size = spool_.size();
      request.body = [this](std::uint64_t offset, MutableByteSpan target) {
        return spool_.Read(offset, target);
      };
      return request;
    };
    const HttpReply reply = PerformPatiently(store_.client_, make, &ambiguous);
    if (reply.head.code == 412) return OnAlreadyThere(name, ambiguous);
    SEGUE_RETURN_IF_ERROR(StatusOfReply(reply, store_.Describe(name)));
    if (reply.head.code == 201) return PutOutcome::kCreated;
    return Corruption(store_.Describe(name) + ": the server answered " +
                      std::to_string(reply.head.code) +
                      " to a put, which says nothing of the condition; is this a segue store?");
  }

 private:
  // When an earlier try's answer was lost, what is there may be ours. Equal bytes are as good.
  Result<PutOutcome> OnAlreadyThere(const std::string& name, bool ambiguous) {
    if (!ambiguous || spool_.size() > kCompareSizeMax) return PutOutcome::kAlreadyThere;
    const auto there = store_.Get(name, kCompareSizeMax);
    if (!there.ok() || there->size() != spool_.size()) return PutOutcome::kAlreadyThere;
    ByteVector ours(spool_.size());
    SEGUE_RETURN_IF_ERROR(spool_.Read(0, ours));
    return ours == there.value() ? PutOutcome::kCreated : PutOutcome::kAlreadyThere;
  }

  HttpStore& store_;
  Spool spool_;
  bool spent_ = false;
};

Result<std::unique_ptr<StoreWriter>> HttpStore::StartWrite() {
  return std::unique_ptr<StoreWriter>(std::make_unique<Writer>(*this));
}

}  // namespace segue
