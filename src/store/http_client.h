// SPDX-License-Identifier: Apache-2.0
//
// HttpClient: one HTTP request and its answer, by libcurl. What must hold: no request lasts for
// ever, nothing that a server sends is kept without a limit, redirects are not followed (they could
// lead a token astray), and no header of ours appears in a message.
//
// A dropped connection is an outcome, not only an error: the answer's head and the bytes that came
// are there all the same, so that the caller can go on from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "segue/status.h"

namespace segue {

// Status line and headers of an answer.
struct HttpHead {
  int code = 0;                                            // 0: there was no answer.
  std::map<std::string, std::string, std::less<>> fields;  // Names in lower case.

  // Empty when there is no such field.
  std::string_view Field(std::string_view name) const;
  // Content-Length, where it is stated and a number.
  std::optional<std::uint64_t> ContentLength() const;
  // A strong ETag, with its quotes; empty where there is none or a weak one.
  std::string_view StrongTag() const;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> fields;  // "Name: value".
  // Body: `body_size` bytes, read by `body` at any offset, some more than once.
  bool has_body = false;
  std::uint64_t body_size = 0;
  std::function<Status(std::uint64_t offset, MutableByteSpan target)> body;
  // For answers of 2xx alone: the head before any byte, then the bytes. A failure ends the request.
  std::function<Status(const HttpHead&)> on_head;
  std::function<Status(ByteSpan)> on_body;
  // Of the whole request, where it is less than the client's; 0: the client's.
  std::chrono::milliseconds time_max{0};
  // Asked now and then, at least every second; true ends the request.
  std::function<bool()> stopped;
};

struct HttpReply {
  HttpHead head;
  std::string error_text;  // The body of an answer other than 2xx, cut.
  Status transport;        // Whether the whole answer came; Unavailable may be better later.
  Status refusal;          // What on_head or on_body said.
  bool reached = true;     // False: there was no connection, nobody listens there.
  bool given_up = false;   // The client's owner wants no more.
};

// Thread-safe; keeps connections for the next request.
class HttpClient {
 public:
  struct Options {
    int connect_seconds = limits::kStoreConnectSecondsMax;
    int stall_seconds = limits::kStoreStallSecondsMax;
    int request_seconds = limits::kStoreRequestSecondsMax;
    std::chrono::milliseconds retry_wait{limits::kStoreRetryWaitMs};
    bool direct = false;  // Past any proxy that the environment names.
    // Asked now and then, at least every second, and between tries: true ends the request that runs
    // and all that follow. From the threads of the requests.
    std::function<bool()> given_up = {};
  };

  HttpClient() : HttpClient(Options()) {}
  explicit HttpClient(const Options& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpReply Perform(const HttpRequest& request);
  // Sleeps before try `tries` + 1: the wait doubles, or is what the server asked for, bounded. Less
  // once it is given up.
  void WaitBefore(int tries, const HttpHead& head) const;

 private:
  class Handle;
  std::unique_ptr<Handle> Take();
  bool IsGivenUp() const { return options_.given_up && options_.given_up(); }

  const Options options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;
};

// Makes the request anew for each try (signatures carry the time), with these fields added.
using HttpRequestMaker = std::function<HttpRequest(const std::vector<std::string>& fields)>;

// Performs the request again while the outcome may be better later; the last one otherwise.
// `ambiguous` is set when an earlier try may have had its effect without our knowing.
HttpReply PerformPatiently(HttpClient& client, const std::function<HttpRequest()>& make,
                           bool* ambiguous = nullptr);

// Whether an outcome like this may be another one later: no whole answer, 408, 429 or 5xx.
bool IsTransient(const HttpReply& reply);

// OK for 2xx that arrived whole; otherwise what the caller should do, as docs/protocol.md, section
// 9, has it. `what` begins the message.
Status StatusOfReply(const HttpReply& reply, std::string_view what);

// `text` of a server, fit for a message: one line, cut.
std::string QuotedReply(std::string_view text);

}  // namespace segue
