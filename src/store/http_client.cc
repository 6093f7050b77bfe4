// SPDX-License-Identifier: Apache-2.0
//
// HttpClient: libcurl's easy interface, one handle a running request. Callbacks note what they
// refuse and end the transfer; whether that or the network ended it is told apart at the end.
#include "store/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/allocated.h"
#include "base/check.h"

namespace segue {
namespace {

constexpr std::size_t kQuotedSizeMax = 300;

// Between two looks at whether to go on, in a wait between tries.
constexpr std::chrono::milliseconds kGivenUpLook{100};

Status GivenUp() { return Unavailable("the request was given up"); }

std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view Trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

// libcurl's error as ours. What no waiting mends is InvalidArgument.
Status TransportStatus(CURLcode error, const char* detail) {
  const std::string text = *detail != '\0' ? detail : ::curl_easy_strerror(error);
  switch (error) {
    case CURLE_OK: return {};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return InvalidArgument(text);
    default: return Unavailable(text);
  }
}

}  // namespace

std::string_view HttpHead::Field(std::string_view name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string_view() : found->second;
}

std::optional<std::uint64_t> HttpHead::ContentLength() const {
  return ParseNumber(Field("content-length"));
}

std::string_view HttpHead::StrongTag() const {
  const std::string_view tag = Field("etag");
  return tag.size() >= 2 && tag.starts_with('"') && tag.ends_with('"') ? tag : std::string_view();
}

// A libcurl handle and the state of the request that it runs.
class HttpClient::Handle {
 public:
  Handle() : easy_(Allocated(::curl_easy_init())) {}
  ~Handle() { ::curl_easy_cleanup(easy_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  HttpReply Run(const HttpRequest& request, const Options& options) {
    request_ = &request;
    given_up_ = &options.given_up;
    reply_ = HttpReply();
    offset_ = header_size_ = 0;
    head_done_ = stopped_ = false;
    detail_.front() = '\0';
    ::curl_easy_reset(easy_);
    SetLimits(options);
    curl_slist* fields = nullptr;
    for (const std::string& field : request.fields) {
      fields = ::curl_slist_append(fields, field.c_str());
    }
    SetRequest(fields);
    const CURLcode error = ::curl_easy_perform(easy_);
    ::curl_slist_free_all(fields);
    if (!stopped_) reply_.transport = TransportStatus(error, detail_.data());
    reply_.given_up = error == CURLE_ABORTED_BY_CALLBACK && IsGivenUp();
    if (reply_.given_up) reply_.transport = GivenUp();
    reply_.reached = error != CURLE_COULDNT_CONNECT && error != CURLE_COULDNT_RESOLVE_HOST;
    // An interim answer alone is none.
    if (!head_done_) reply_.head = HttpHead();
    return std::move(reply_);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    SEGUE_CHECK(::curl_easy_setopt(easy_, option, value) == CURLE_OK);
  }

  void SetLimits(const Options& options) {
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Set(CURLOPT_FOLLOWLOCATION, 0L);
    Set(CURLOPT_SSL_VERIFYPEER, 1L);
    Set(CURLOPT_SSL_VERIFYHOST, 2L);
    // As every program on OpenSSL does.
    if (const char* const roots = std::getenv("SSL_CERT_FILE")) Set(CURLOPT_CAINFO, roots);
    Set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_seconds));
    Set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(limits::kStoreRateMin));
    Set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
    const std::chrono::milliseconds longest = std::chrono::seconds(options.request_seconds);
    const bool shorter = request_->time_max.count() > 0 && request_->time_max < longest;
    Set(CURLOPT_TIMEOUT_MS, static_cast<long>((shorter ? request_->time_max : longest).count()));
    if (options.direct) Set(CURLOPT_NOPROXY, "*");
    if (request_->stopped || options.given_up) {
      Set(CURLOPT_NOPROGRESS, 0L);
      Set(CURLOPT_XFERINFOFUNCTION, &Handle::ProgressCallback);
      Set(CURLOPT_XFERINFODATA, this);
    }
    Set(CURLOPT_ERRORBUFFER, detail_.data());
  }

  void SetRequest(curl_slist* fields) {
    Set(CURLOPT_URL, request_->url.c_str());
    // Object names hold no "/../", and nothing else here may change what was signed.
    Set(CURLOPT_PATH_AS_IS, 1L);
    Set(CURLOPT_HTTPHEADER, fields);
    Set(CURLOPT_HEADERFUNCTION, &Handle::HeaderCallback);
    Set(CURLOPT_HEADERDATA, this);
    Set(CURLOPT_WRITEFUNCTION, &Handle::WriteCallback);
    Set(CURLOPT_WRITEDATA, this);
    if (request_->method == "HEAD") {
      Set(CURLOPT_NOBODY, 1L);
      return;
    }
    if (request_->has_body) {
      Set(CURLOPT_UPLOAD, 1L);
      Set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request_->body_size));
      Set(CURLOPT_READFUNCTION, &Handle::ReadCallback);
      Set(CURLOPT_READDATA, this);
      Set(CURLOPT_SEEKFUNCTION, &Handle::SeekCallback);
      Set(CURLOPT_SEEKDATA, this);
    }
    if (request_->method != "GET") Set(CURLOPT_CUSTOMREQUEST, request_->method.c_str());
  }

  bool IsSuccess() const { return reply_.head.code >= 200 && reply_.head.code <= 299; }

  // One line of the head; an interim answer (1xx) may come before the final one.
  bool AddHeader(std::string_view line) {
    if (head_done_) return true;  // Trailers.
    header_size_ += line.size();
    if (header_size_ > limits::kHttpHeaderSizeMax) {
      return Stop(ResourceExhausted("the head of the answer is over the limit of 64 KiB"));
    }
    HttpHead& head = reply_.head;
    if (line.starts_with("HTTP/")) {
      head = HttpHead();
      const std::size_t space = std::min(line.find(' '), line.size());
      head.code = static_cast<int>(
          ParseNumber(line.substr(std::min(space + 1, line.size()), 3)).value_or(0));
      return true;
    }
    const std::string_view text = Trimmed(line);
    if (!text.empty()) {
      const std::size_t colon = std::min(text.find(':'), text.size());
      head.fields.insert_or_assign(
          LowerCase(Trimmed(text.substr(0, colon))),
          std::string(Trimmed(text.substr(std::min(colon + 1, text.size())))));
      return true;
    }
    if (head.code < 200) return true;
    head_done_ = true;
    if (IsSuccess() && request_->on_head) return Stop(request_->on_head(head));
    return true;
  }

  bool AddBody(ByteSpan bytes) {
    if (IsSuccess()) return request_->on_body ? Stop(request_->on_body(bytes)) : true;
    const std::size_t room = limits::kHttpErrorSizeMax - reply_.error_text.size();
    reply_.error_text += AsText(bytes.first(std::min(room, bytes.size())));
    // The rest of an endless refusal is not waited for.
    stopped_ = bytes.size() >= room;
    return !stopped_;
  }

  // True to go on. A failure ends the transfer and is kept.
  bool Stop(Status status) {
    if (status.ok()) return true;
    reply_.refusal = std::move(status);
    stopped_ = true;
    return false;
  }

  static std::size_t HeaderCallback(char* data, std::size_t size, std::size_t count, void* self) {
    const bool more = static_cast<Handle*>(self)->AddHeader({data, size * count});
    return more ? size * count : 0;
  }

  // Zero ends the transfer, unless nothing was given.
  static std::size_t WriteCallback(char* data, std::size_t size, std::size_t count, void* self) {
    const bool more = static_cast<Handle*>(self)->AddBody(AsBytes({data, size * count}));
    return more ? size * count : 0;
  }

  static std::size_t ReadCallback(char* target, std::size_t size, std::size_t count, void* self) {
    Handle& handle = *static_cast<Handle*>(self);
    const std::uint64_t left = handle.request_->body_size - handle.offset_;
    const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(size * count, left));
    if (part == 0) return 0;
    const MutableByteSpan span(reinterpret_cast<std::byte*>(target), part);
    if (!handle.Stop(handle.request_->body(handle.offset_, span))) return CURL_READFUNC_ABORT;
    handle.offset_ += part;
    return part;
  }

  // Anything but zero ends the transfer.
  static int ProgressCallback(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const Handle& handle = *static_cast<Handle*>(self);
    const bool stopped = handle.request_->stopped && handle.request_->stopped();
    return stopped || handle.IsGivenUp() ? 1 : 0;
  }

  bool IsGivenUp() const { return *given_up_ && (*given_up_)(); }

  static int SeekCallback(void* self, curl_off_t offset, int origin) {
    Handle& handle = *static_cast<Handle*>(self);
    const auto wanted = static_cast<std::uint64_t>(offset);
    if (origin != SEEK_SET || wanted > handle.request_->body_size) return CURL_SEEKFUNC_FAIL;
    handle.offset_ = wanted;
    return CURL_SEEKFUNC_OK;
  }

  CURL* const easy_;
  std::array<char, CURL_ERROR_SIZE> detail_{};
  const HttpRequest* request_ = nullptr;
  const std::function<bool()>* given_up_ = nullptr;
  HttpReply reply_;
  std::uint64_t offset_ = 0;  // Of the body that is sent.
  std::size_t header_size_ = 0;
  bool head_done_ = false;
  bool stopped_ = false;
};

HttpClient::HttpClient(const Options& options) : options_(options) {
  static const bool ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  SEGUE_CHECK(ready);
}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Handle> HttpClient::Take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Handle>();
  std::unique_ptr<Handle> handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

HttpReply HttpClient::Perform(const HttpRequest& request) {
  if (IsGivenUp()) {
    HttpReply reply;
    reply.transport = GivenUp();
    reply.given_up = true;
    return reply;
  }
  std::unique_ptr<Handle> handle = Take();
  HttpReply reply = handle->Run(request, options_);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(handle));
  return reply;
}

void HttpClient::WaitBefore(int tries, const HttpHead& head) const {
  const std::chrono::milliseconds longest{limits::kStoreRetryWaitMsMax};
  std::chrono::milliseconds wait = options_.retry_wait * (1 << std::min(tries - 1, 10));
  // Seconds; a date is not looked at.
  if (const auto asked = ParseNumber(head.Field("retry-after"))) {
    wait = std::max<std::chrono::milliseconds>(
        wait, std::chrono::seconds(std::min<std::uint64_t>(*asked, limits::kStoreRetryWaitMsMax)));
  }
  const auto until = std::chrono::steady_clock::now() + std::min(wait, longest);
  for (auto now = std::chrono::steady_clock::now(); now < until && !IsGivenUp();
       now = std::chrono::steady_clock::now()) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(until - now, kGivenUpLook));
  }
}

bool IsTransient(const HttpReply& reply) {
  if (!reply.refusal.ok() || reply.given_up) return false;
  if (!reply.transport.ok()) return reply.transport.code() == StatusCode::kUnavailable;
  const int code = reply.head.code;
  // 501 and 505 say that it will never do, 507 that somebody must make room.
  return code == 408 || code == 429 || (code >= 500 && code != 501 && code != 505 && code != 507);
}

HttpReply PerformPatiently(HttpClient& client, const std::function<HttpRequest()>& make,
                           bool* ambiguous) {
  for (int tries = 1;; ++tries) {
    HttpReply reply = client.Perform(make());
    if (!IsTransient(reply) || tries == limits::kStoreTryCountMax) return reply;
    if (ambiguous != nullptr) *ambiguous = true;
    client.WaitBefore(tries, reply.head);
  }
}

std::string QuotedReply(std::string_view text) {
  std::string line;
  for (const char c : Trimmed(text).substr(0, kQuotedSizeMax)) {
    line += c >= ' ' && c <= '~' ? c : ' ';
  }
  return text.size() > kQuotedSizeMax ? line + "..." : line;
}

Status StatusOfReply(const HttpReply& reply, std::string_view what) {
  const auto in_context = [&](const Status& status) { return status.WithContext(what); };
  if (!reply.refusal.ok()) return in_context(reply.refusal);
  const int code = reply.head.code;
  if (code >= 200 && code <= 299) return in_context(reply.transport);
  if (code == 0) return in_context(reply.transport);
  std::string text = std::string(what) + ": the server answered " + std::to_string(code);
  if (!reply.error_text.empty()) text += " (" + QuotedReply(reply.error_text) + ")";
  if (code >= 300 && code <= 399) {
    return Unsupported(text + "; redirects are not followed, name the address '" +
                       QuotedReply(reply.head.Field("location")) + "' itself if it is right");
  }
  switch (code) {
    case 404:
    case 410: return NotFound(text);
    case 413:
    case 507: return ResourceExhausted(text);
    case 501:
    case 505: return Unsupported(text);
    case 408:
    case 429: return Unavailable(text);
    default: return code >= 500 ? Unavailable(text) : InvalidArgument(text);
  }
}

}  // namespace segue
