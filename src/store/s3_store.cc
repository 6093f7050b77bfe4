// SPDX-License-Identifier: Apache-2.0
//
// S3Store: reading, listing and deleting; writing is in s3_writer.cc.
#include "store/s3_store.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "base/hash.h"
#include "store/s3_writer.h"

namespace segue {
namespace {

constexpr const char* kPageSize = "1000";
// Of a continuation token; those that are seen are about a hundred bytes.
constexpr std::size_t kTokenSizeMax = 4096;

}  // namespace

Result<std::unique_ptr<S3Store>> S3Store::Open(const S3Options& options) {
  std::unique_ptr<S3Store> store(new S3Store(options));
  const Status listed = store->ListPage("", "").status();
  if (!listed.ok()) return listed;
  return store;
}

std::string S3Store::Describe(const std::string& name) const {
  return "object '" + name + "' of store '" + client_.options().url + "'";
}

Result<std::unique_ptr<StoreWriter>> S3Store::StartWrite() {
  return std::unique_ptr<StoreWriter>(std::make_unique<S3Writer>(*this));
}

HttpObject S3Store::ObjectToRead(const std::string& name) {
  return {client_.http(),
          [this, key = client_.Key(name)](const std::vector<std::string>& fields) {
            S3Request request;
            request.key = key;
            request.fields = fields;
            return client_.Sign(request);
          },
          Describe(name)};
}

Result<ByteVector> S3Store::Get(const std::string& name, std::uint64_t size_max) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  return ReadHttpObject(ObjectToRead(name), size_max);
}

Result<ByteVector> S3Store::GetRange(const std::string& name, std::uint64_t offset,
                                     std::uint64_t size) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  if (size > 0) return ReadHttpRange(ObjectToRead(name), offset, size);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t total, Size(name));
  if (offset <= total) return ByteVector();
  return Corruption(Describe(name) + " has " + std::to_string(total) + " bytes; offset " +
                    std::to_string(offset) + " was expected in it");
}

Result<std::uint64_t> S3Store::Size(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  S3Request request;
  request.method = "HEAD";
  request.key = client_.Key(name);
  const HttpReply reply = client_.Perform(request);
  SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(reply, Describe(name)));
  if (const auto size = reply.head.ContentLength()) return *size;
  return Corruption(Describe(name) + ": the server does not state its size");
}

Result<std::vector<std::string>> S3Store::List(const std::string& prefix) {
  return ListKind(prefix, &Page::objects);
}

Result<std::vector<std::string>> S3Store::ListFolders(const std::string& prefix) {
  return ListKind(prefix, &Page::folders);
}

Result<std::vector<std::string>> S3Store::ListKind(const std::string& prefix,
                                                   std::vector<std::string> Page::*kind) {
  if (!prefix.empty()) SEGUE_RETURN_IF_ERROR(CheckObjectName(prefix));
  const std::string what = DescribeListing(prefix, url());
  std::vector<std::string> names;
  std::string token;
  std::set<std::string> tokens;
  do {
    SEGUE_ASSIGN_OR_RETURN(Page page, ListPage(prefix, token));
    token = std::move(page.next);
    if (!token.empty() && !tokens.insert(token).second) {
      return Corruption(what + ": the server goes on from where it was");
    }
    if (tokens.size() >= limits::kS3PageCountMax) {
      return ResourceExhausted(what + ": more than " + std::to_string(limits::kS3PageCountMax) +
                               " pages");
    }
    std::vector<std::string>& found = page.*kind;
    if (found.size() > limits::kStoreEntryCountMax - names.size()) {
      return ResourceExhausted(what + ": more than 1,000,000 names");
    }
    std::move(found.begin(), found.end(), std::back_inserter(names));
  } while (!token.empty());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<S3Store::Page> S3Store::ListPage(const std::string& folder, const std::string& token) {
  const std::string prefix = client_.Key(folder.empty() ? "" : folder + "/");
  const std::string what = DescribeListing(folder, url());
  S3Request request;
  request.query = {
      {"list-type", "2"}, {"prefix", prefix}, {"delimiter", "/"}, {"max-keys", kPageSize}};
  if (!token.empty()) request.query.emplace_back("continuation-token", token);
  SEGUE_ASSIGN_OR_RETURN(const XmlElement root, client_.PerformXml(request, what));
  if (root.name != "ListBucketResult") {
    return Corruption(what + ": the server answered <" + QuotedReply(root.name) + ">");
  }
  Page page;
  for (const XmlElement& entry : root.children) {
    const bool is_folder = entry.name == "CommonPrefixes";
    if (!is_folder && entry.name != "Contents") continue;
    std::string_view key = entry.ChildText(is_folder ? "Prefix" : "Key");
    if (!key.starts_with(prefix)) return Corruption(what + ": a key is not below the prefix");
    key.remove_prefix(prefix.size());
    if (is_folder && key.ends_with('/')) key.remove_suffix(1);
    // What others keep beside our objects is not ours to show.
    if (!CheckObjectName(key).ok() || key.find('/') != std::string_view::npos) continue;
    (is_folder ? page.folders : page.objects).emplace_back(key);
  }
  if (root.ChildText("IsTruncated") != "true") return page;
  page.next = std::string(root.ChildText("NextContinuationToken"));
  if (page.next.empty()) return Corruption(what + ": a page without the next one's token");
  if (page.next.size() > kTokenSizeMax) return Corruption(what + ": a token of more than 4 KiB");
  return page;
}

Status S3Store::Delete(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  S3Request request;
  request.method = "DELETE";
  request.key = client_.Key(name);
  const HttpReply reply = client_.Perform(request);
  if (reply.head.code == 404) return {};
  return StatusOfS3Reply(reply, Describe(name));
}

Status S3Store::CheckCondition() {
  if (client_.options().unconditional) return {};
  const std::lock_guard lock(mutex_);
  if (condition_checked_) return {};
  SEGUE_RETURN_IF_ERROR(TryCondition());
  condition_checked_ = true;
  return {};
}

// Puts the same empty object with the condition: the first time it may be new, the second time a
// server that knows the condition must refuse.
Status S3Store::TryCondition() {
  const std::string what = "store '" + url() + "'";
  S3Request request;
  request.method = "PUT";
  request.key = client_.Key(kS3ProbeName);
  request.fields = {"If-None-Match: *"};
  request.has_body = true;
  request.body_hash = HashSha256({}).ToHex();
  for (int round = 0; round < 2; ++round) {
    const HttpReply reply = client_.Perform(request);
    if (reply.head.code == 412) return {};
    if (reply.head.code == 501) break;
    SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(reply, what));
  }
  return Unsupported(
      what +
      ": the server does not honour 'If-None-Match: *', so that two publishers could "
      "overwrite each other; with SEGUE_S3_UNCONDITIONAL=1 it is used all the same, "
      "and one publisher at a time is your promise");
}

std::optional<std::int64_t> ParseS3Time(std::string_view text) {
  std::tm parts{};
  const std::string whole(text.substr(0, 19));
  const char* const end = ::strptime(whole.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0' || !text.ends_with('Z')) return std::nullopt;
  return std::int64_t{::timegm(&parts)};
}

Status S3Store::RemoveStaleTemporaries(std::chrono::seconds age) {
  const std::string what = "unfinished uploads of store '" + url() + "'";
  S3Request request;
  request.query = {{"uploads", ""}, {"prefix", client_.options().prefix}};
  // One page: what is beyond it goes the next time.
  SEGUE_ASSIGN_OR_RETURN(const XmlElement root, client_.PerformXml(request, what));
  Status failure;
  for (const XmlElement& upload : root.children) {
    if (upload.name != "Upload") continue;
    const auto began = ParseS3Time(upload.ChildText("Initiated"));
    const std::string key(upload.ChildText("Key"));
    if (!began || client_.Now() - *began < age.count()) continue;
    if (!key.starts_with(client_.options().prefix)) continue;
    const Status aborted = AbortUpload(client_, key, std::string(upload.ChildText("UploadId")));
    if (!aborted.ok()) failure = aborted;
  }
  return failure;
}

}  // namespace segue
