// SPDX-License-Identifier: Apache-2.0
//
// Store: what all transports share. The check of object names stands before every use of a name, so
// that no transport has to think about paths that lead out of it (case B5).
#include "store/store.h"

#include <algorithm>
#include <cstddef>

#include "segue/give_up.h"
#include "segue/token.h"
#include "store/archive.h"
#include "store/dir_store.h"
#include "store/http_store.h"
#include "store/s3_store.h"

namespace segue {
namespace {

constexpr std::size_t kObjectNameSizeMax = 512;
// What every file system allows for one name.
constexpr std::size_t kObjectPartSizeMax = 255;
// Bytes of an unknown name that a message repeats.
constexpr std::size_t kQuotedSizeMax = 80;

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// `name` in quotes, fit for a log line whatever is in it.
std::string Quoted(std::string_view name) {
  std::string quoted = "'";
  for (const char c : name.substr(0, kQuotedSizeMax)) {
    if (c >= ' ' && c <= '~') {
      quoted += c;
    } else {
      quoted += "\\x" + ToHex(AsBytes({&c, 1}));
    }
  }
  return quoted + (name.size() > kQuotedSizeMax ? "...'" : "'");
}

// What is wrong with one part of a name, or empty.
std::string_view PartFault(std::string_view part) {
  if (part.empty()) return "has an empty part";
  if (part.size() > kObjectPartSizeMax) return "has a part of more than 255 bytes";
  if (part.front() == '.') return "has a part that begins with '.'";
  const bool plain = std::all_of(part.begin(), part.end(), [](char c) {
    return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-';
  });
  return plain ? "" : "has a byte outside [A-Za-z0-9._-]";
}

// What stands before the first ':', when it can be a scheme; empty for a path.
std::string_view SchemeOf(std::string_view url) {
  const std::string_view scheme = url.substr(0, std::min(url.find(':'), url.size()));
  if (scheme.size() == url.size()) return {};
  const bool plain = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return IsLetterOrDigit(c) || c == '+' || c == '-' || c == '.';
  });
  return plain ? scheme : std::string_view{};
}

using GivenUp = std::function<bool()>;

// The store's owner, or who calls it, wants no more.
GivenUp OrByCaller(const GivenUp& given_up) {
  return [given_up] { return GiveUpScope::IsGivenUp() || (given_up && given_up()); };
}

Result<std::unique_ptr<Store>> OpenHttpStore(const std::string& url, const GivenUp& given_up) {
  HttpStore::Options options;
  options.url = url;
  options.client.given_up = OrByCaller(given_up);
  SEGUE_ASSIGN_OR_RETURN(options.token, TokenFromEnvironment("SEGUE_STORE_TOKEN"));
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, HttpStore::Open(options));
  return store;
}

Result<std::unique_ptr<Store>> OpenS3Store(const std::string& url, const GivenUp& given_up) {
  SEGUE_ASSIGN_OR_RETURN(S3Options options, S3Options::FromEnvironment(url));
  options.client.given_up = OrByCaller(given_up);
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, S3Store::Open(options));
  return store;
}

}  // namespace

Status CheckObjectName(std::string_view name) {
  const auto refuse = [&](std::string_view fault) {
    return InvalidArgument("object name " + Quoted(name) + " " + std::string(fault) +
                           "; expected parts of [A-Za-z0-9._-] joined by '/'");
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kObjectNameSizeMax) return refuse("has more than 512 bytes");
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view fault = PartFault(name.substr(begin, end - begin));
    if (!fault.empty()) return refuse(fault);
    begin = end + 1;
  }
  return {};
}

Result<PutOutcome> Store::PutIfAbsent(const std::string& name, ByteSpan bytes) {
  // Before a byte is written; Commit() checks again for those who write in pieces.
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer, StartWrite());
  SEGUE_RETURN_IF_ERROR(writer->Append(bytes));
  return writer->Commit(name);
}

Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create,
                                         const std::function<bool()>& given_up) {
  const std::string_view scheme = SchemeOf(url);
  if (scheme == "file") {
    SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> archive,
                           ArchiveStore::Open(url, url.substr(scheme.size() + 1)));
    return archive;
  }
  if (scheme == "http" || scheme == "https") return OpenHttpStore(url, given_up);
  if (scheme == "s3") return OpenS3Store(url, given_up);
  if (!scheme.empty() && scheme != "dir") {
    return Unsupported("store " + Quoted(url) + " has the scheme '" + std::string(scheme) +
                       "'; expected dir:PATH, a plain path, file:PATH, http(s)://HOST/PREFIX or "
                       "s3://BUCKET/PREFIX");
  }
  const std::string path = scheme.empty() ? url : url.substr(scheme.size() + 1);
  if (path.empty() || path.find('\0') != std::string::npos) {
    return InvalidArgument("store " + Quoted(url) +
                           " names no folder; expected dir:PATH or a plain path");
  }
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                         DirStore::Open({.url = url, .root = path, .create = create}));
  return store;
}

}  // namespace segue
