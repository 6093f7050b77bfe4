// SPDX-License-Identifier: Apache-2.0
//
// Reading an object over HTTP, whole or a range, through dropped connections and servers that
// answer something else than was asked (case G4). What must hold: bytes of two answers are joined
// only where a strong ETag says that both are of the same object and Content-Range says that the
// second begins where the first ended; everything else begins again or is refused. S3 is read so
// too.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "segue/status.h"
#include "store/http_client.h"

namespace segue {

// `make` gives the GET request. `what` names the object in messages.
struct HttpObject {
  HttpClient& client;
  HttpRequestMaker make;
  std::string what;
};

// The whole object; ResourceExhausted when it is larger than `size_max`.
Result<ByteVector> ReadHttpObject(const HttpObject& object, std::uint64_t size_max);
// Bytes [offset, offset + size), size > 0; Corruption when the object ends before.
Result<ByteVector> ReadHttpRange(const HttpObject& object, std::uint64_t offset,
                                 std::uint64_t size);

// What a request for the names below `folder` (empty: all of the store) is called in messages.
std::string DescribeListing(const std::string& folder, const std::string& url);

}  // namespace segue
