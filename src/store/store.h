// SPDX-License-Identifier: Apache-2.0
//
// Store: where versions are published. Four verbs (put if absent, get, list, delete) over object
// names with '/' in them; every transport (dir, http, s3) gives the same promises:
//
//  - an object appears whole and durable, or not at all; what exists is never changed;
//  - PutIfAbsent of the same name by two writers: exactly one wins, the other is told;
//  - List sees what Put has finished, also on network file systems that cache negative look-ups.
//
// Thread-safe: calls may run at the same time. docs/format.md, "Store", has the object names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

enum class PutOutcome {
  kCreated,       // The object is there, whole and durable, by this call.
  kAlreadyThere,  // An object of that name was there; its bytes were not looked at.
};

// An object that is being written: invisible until Commit(). Destroyed without Commit(): discarded.
class StoreWriter {
 public:
  virtual ~StoreWriter() = default;
  virtual Status Append(ByteSpan bytes) = 0;
  // Makes the object durable and visible under `name` unless one is there.
  virtual Result<PutOutcome> Commit(const std::string& name) = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // For objects too large for one buffer, or whose name follows from their content.
  virtual Result<std::unique_ptr<StoreWriter>> StartWrite() = 0;
  // The whole object; ResourceExhausted when it is larger than `size_max`.
  virtual Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) = 0;
  // Bytes [offset, offset + size); Corruption when the object ends before.
  virtual Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                                      std::uint64_t size) = 0;
  virtual Result<std::uint64_t> Size(const std::string& name) = 0;
  // Names of the objects directly below `prefix` (a folder name, no trailing '/'), sorted, without
  // the prefix; empty when there is no such folder. Temporary files never show.
  virtual Result<std::vector<std::string>> List(const std::string& prefix) = 0;
  // Names of the folders directly below `prefix`, as List() gives the objects.
  virtual Result<std::vector<std::string>> ListFolders(const std::string& prefix) = 0;
  // Success when the object is not there (another may have deleted it).
  virtual Status Delete(const std::string& name) = 0;
  // For pruners: removes what writers that crashed have left, last written at least `age` ago. Only
  // age tells it from what is being written, so it should exceed the longest pause between two
  // appends; a day is a good choice. Transports that keep nothing of the kind do nothing.
  virtual Status RemoveStaleTemporaries(std::chrono::seconds age) = 0;
  // Where this store is, for messages: the URL that opened it.
  virtual const std::string& url() const = 0;

  // The whole of `bytes` as one object.
  Result<PutOutcome> PutIfAbsent(const std::string& name, ByteSpan bytes);
};

// Opens `url`: "dir:PATH" or a plain path; "file:PATH" for a store in one file, to read;
// "http(s)://HOST[:PORT]/PREFIX" for one that `segue store` serves, with the token in
// SEGUE_STORE_TOKEN; "s3://BUCKET/PREFIX", with the usual AWS_... variables. Other schemes:
// Unsupported. A dir store need not exist yet when `create` is set; otherwise NotFound. `given_up`,
// where given, is asked at least every second while a server is waited for, here and in every later
// call, from their threads: true ends the call (Unavailable), and so all that follow. So do a
// caller's own scopes (segue/give_up.h).
Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create,
                                         const std::function<bool()>& given_up = {});

// Object names: 1 to 512 bytes of parts joined by '/'; a part is 1 to 255 of [A-Za-z0-9._-], does
// not begin with '.', and so can never leave the store (case B5). InvalidArgument otherwise.
Status CheckObjectName(std::string_view name);

}  // namespace segue
