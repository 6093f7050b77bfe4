// SPDX-License-Identifier: Apache-2.0
//
// ObjectService: every request is admitted (name, token) in one place, before a route or a body.
#include "server/object_service.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "base/hash.h"
#include "base/json_text.h"
#include "base/limits.h"
#include "server/connections.h"
#include "server/http_listener.h"

namespace segue {
namespace {

// Of an object this much is in memory for each client.
constexpr std::uint64_t kPieceSize = 256ull << 10;
// A refused upload up to this size is read to its end, so that the client hears why.
constexpr std::uint64_t kDrainSizeMax = 1ull << 20;
constexpr std::chrono::hours kStaleAge{24};
constexpr std::chrono::hours kCleanUpInterval{1};

// Seconds of a clock that nobody sets.
std::int64_t MonotonicSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// Fails once a client has been slower than kStoreRateMin for longer than the grace.
class RateGuard {
 public:
  bool Passes(std::uint64_t bytes) {
    bytes_ += bytes;
    const std::int64_t seconds = MonotonicSeconds() - began_;
    return seconds <= limits::kStoreGraceSecondsMax ||
           bytes_ >= static_cast<std::uint64_t>(seconds) * limits::kStoreRateMin;
  }

 private:
  const std::int64_t began_ = MonotonicSeconds();
  std::uint64_t bytes_ = 0;
};

std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int HttpCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return 200;
    case StatusCode::kInvalidArgument: return 400;
    case StatusCode::kNotFound: return 404;
    case StatusCode::kUnsupported: return 501;
    case StatusCode::kResourceExhausted: return 507;
    case StatusCode::kUnavailable: return 503;
    default: return 500;
  }
}

void Refuse(int code, const Status& status, httplib::Response& response) {
  response.status = code;
  JsonObjectText body;
  body.Add("code", StatusCodeName(status.code())).Add("message", status.message());
  response.set_content(body.Text() + "\n", "application/json");
}

}  // namespace

RangeKind ParseRange(const std::string& text, std::uint64_t size, ByteRange& range) {
  const std::string_view unit = "bytes=";
  if (!text.starts_with(unit)) return RangeKind::kWhole;
  const std::string_view spec = std::string_view(text).substr(unit.size());
  const std::size_t dash = spec.find('-');
  if (dash == std::string_view::npos) return RangeKind::kWhole;
  const auto first = ParseNumber(spec.substr(0, dash));
  const auto last = ParseNumber(spec.substr(dash + 1));
  if (!first) {
    if (dash != 0 || !last) return RangeKind::kWhole;
    range.size = std::min(*last, size);
    range.offset = size - range.size;
    return range.size == 0 ? RangeKind::kBeyondEnd : RangeKind::kPart;
  }
  const bool open = dash + 1 == spec.size();
  if (!open && (!last || *last < *first)) return RangeKind::kWhole;
  if (*first >= size) return RangeKind::kBeyondEnd;
  range.offset = *first;
  range.size = open ? size - *first : std::min(*last - *first, size - *first - 1) + 1;
  return RangeKind::kPart;
}

void ObjectService::Attach(httplib::Server& http) {
  CleanUp();
  http.set_payload_max_length(limits::kStoreObjectSizeMax);
  http.set_expect_100_continue_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        const bool welcome = Admit(request, response) && CheckPut(request, response).ok();
        return welcome ? 100 : response.status;
      });
  http.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        using Outcome = httplib::Server::HandlerResponse;
        ++requests_;
        // Its body has to be read first.
        if (request.method == "PUT" && request.path.size() < 1024) return Outcome::Unhandled;
        if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) {
          ConnectionServer::EndAfterAnswer();
        }
        if (Admit(request, response)) Answer(request, response);
        return Outcome::Handled;
      });
  http.Put(".*", [this](const httplib::Request& request, httplib::Response& response,
                        const httplib::ContentReader& content) {
    const bool welcome = Admit(request, response) && CheckPut(request, response).ok();
    if (welcome) {
      const Status status = Put(request, response, content);
      if (!status.ok()) Refuse(HttpCode(status.code()), status, response);
      return;
    }
    const auto size = ParseNumber(request.get_header_value("Content-Length"));
    const bool plain = !request.has_header("Content-Encoding");
    if (plain && size && *size <= kDrainSizeMax) {
      content([](const char*, std::size_t) { return true; });
    } else {
      ConnectionServer::EndAfterAnswer();
    }
  });
  http.set_error_handler([this](const httplib::Request&, httplib::Response& response) {
    ++refused_;
    if (!response.body.empty()) return;
    Refuse(response.status, InvalidArgument("the request was not understood"), response);
  });
}

// Name and token. Sets the refusal where it returns false.
bool ObjectService::Admit(const httplib::Request& request, httplib::Response& response) {
  // Names need no escapes, so there is one way to write each.
  if (request.target.find_first_of("%?#\\") != std::string::npos ||
      !request.path.starts_with('/')) {
    Refuse(400, InvalidArgument("the path is not that of an object"), response);
    return false;
  }
  const bool writes = request.method == "PUT" || request.method == "DELETE";
  if (!writes && request.method != "GET" && request.method != "HEAD") {
    Refuse(405, InvalidArgument("a store knows GET, HEAD, PUT and DELETE"), response);
    return false;
  }
  if (writes && options_.write_token.empty()) {
    Refuse(403, InvalidArgument("this store is read-only"), response);
    return false;
  }
  const std::string& token = writes ? options_.write_token : options_.read_token;
  if (token.empty() || TokenMatches(token, request.get_header_value("Authorization"))) return true;
  Refuse(401, InvalidArgument("a bearer token is needed (SEGUE_STORE_TOKEN), or this one is wrong"),
         response);
  return false;
}

void ObjectService::Answer(const httplib::Request& request, httplib::Response& response) {
  Status status;
  if (request.method == "DELETE") {
    status = store_.Delete(request.path.substr(1));
    response.status = 204;
  } else {
    status = Get(request, response);
  }
  if (!status.ok()) Refuse(HttpCode(status.code()), status, response);
}

Status ObjectService::Get(const httplib::Request& request, httplib::Response& response) {
  if (request.path == "/.metrics") {
    GetMetrics(response);
    return {};
  }
  const std::string name = request.path.substr(1);
  if (!name.empty() && !name.ends_with('/')) return GetObject(name, request, response);
  if (!options_.has_listing) return NotFound("listings are the origin's");
  return GetListing(name.substr(0, name.empty() ? 0 : name.size() - 1), response);
}

Status ObjectService::GetListing(const std::string& folder, httplib::Response& response) {
  SEGUE_ASSIGN_OR_RETURN(const auto objects, store_.List(folder));
  SEGUE_ASSIGN_OR_RETURN(const auto folders, store_.ListFolders(folder));
  JsonObjectText listing;
  listing.AddText("objects", JsonList(objects)).AddText("folders", JsonList(folders));
  const std::string text = listing.Text() + "\n";
  if (text.size() > limits::kStoreListSizeMax) {
    return ResourceExhausted("folder '" + folder + "' has too many names for one listing");
  }
  response.status = 200;
  response.set_header("Cache-Control", "no-store");
  response.set_content(text, "application/json");
  return {};
}

Status ObjectService::GetObject(const std::string& name, const httplib::Request& request,
                                httplib::Response& response) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  if (options_.before_read) {
    SEGUE_RETURN_IF_ERROR(options_.before_read(name, request.get_header_value("Segue-Via")));
  }
  SEGUE_ASSIGN_OR_RETURN(const std::shared_ptr<ObjectReader> reader, store_.OpenReader(name));
  const std::string tag = "\"" + reader->tag() + "\"";
  response.set_header("ETag", tag);
  response.set_header("Accept-Ranges", "bytes");
  ByteRange range{0, reader->size()};
  const std::string condition = request.get_header_value("If-Range");
  RangeKind kind = RangeKind::kWhole;
  if (condition.empty() || condition == tag) {
    kind = ParseRange(ConnectionServer::AskedRange(), reader->size(), range);
  }
  const std::string total = "/" + std::to_string(reader->size());
  if (kind == RangeKind::kBeyondEnd) {
    response.set_header("Content-Range", "bytes *" + total);
    Refuse(416, Corruption("the object ends before the range"), response);
    return {};
  }
  response.status = 200;
  if (kind == RangeKind::kPart) {
    response.status = 206;
    response.set_header("Content-Range", "bytes " + std::to_string(range.offset) + "-" +
                                             std::to_string(range.offset + range.size - 1) + total);
  }
  const char* const type = "application/octet-stream";
  if (range.size == 0) {
    response.set_content("", type);
    return {};
  }
  const bool is_payload = name.find("/payloads/") != std::string::npos;
  const auto provide = [this, reader, range, is_payload, guard = RateGuard()](
                           std::size_t offset, std::size_t size, httplib::DataSink& sink) mutable {
    ByteVector piece(std::min<std::uint64_t>(kPieceSize, size));
    if (!reader->Read(range.offset + offset, piece).ok()) return false;
    // Counted first, so that who has the bytes finds them counted; those of a connection that
    // breaks here too.
    sent_bytes_ += piece.size();
    if (is_payload) sent_payload_bytes_ += piece.size();
    if (!sink.write(reinterpret_cast<const char*>(piece.data()), piece.size())) return false;
    return guard.Passes(piece.size());
  };
  response.set_content_provider(range.size, type, provide);
  return {};
}

// What can be said of a put before its body. The refusal is in `response`.
Status ObjectService::CheckPut(const httplib::Request& request, httplib::Response& response) {
  const auto refuse = [&](int code, std::string message) {
    Status status = InvalidArgument(std::move(message));
    Refuse(code, status, response);
    return status;
  };
  const Status name = CheckObjectName(request.path.substr(1));
  if (!name.ok()) return refuse(400, name.message());
  if (request.get_header_value("If-None-Match") != "*") {
    return refuse(428, "a put needs 'If-None-Match: *': objects are never changed");
  }
  const auto size = ParseNumber(request.get_header_value("Content-Length"));
  if (!size || request.has_header("Transfer-Encoding")) {
    return refuse(411, "a put needs its Content-Length, and no Transfer-Encoding");
  }
  if (*size > limits::kStoreObjectSizeMax) {
    return refuse(
        413, "the object is larger than " + std::to_string(limits::kStoreObjectSizeMax) + " bytes");
  }
  if (request.has_header("Content-Encoding") || request.is_multipart_form_data()) {
    return refuse(415, "an object is put as it is, without an encoding");
  }
  if (!Sha256::FromHex(request.get_header_value("Segue-SHA256"))) {
    return refuse(400, "a put needs the SHA-256 of its bytes in Segue-SHA256");
  }
  return {};
}

Status ObjectService::Put(const httplib::Request& request, httplib::Response& response,
                          const httplib::ContentReader& content) {
  const std::uint64_t announced =
      ParseNumber(request.get_header_value("Content-Length")).value_or(0);
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer, store_.StartWrite());
  Sha256Hasher hasher;
  RateGuard guard;
  Status written;
  std::uint64_t size = 0;
  const bool whole = content([&](const char* data, std::size_t count) {
    const ByteSpan bytes = AsBytes({data, count});
    hasher.Add(bytes);
    size += count;
    received_bytes_ += count;
    written = writer->Append(bytes);
    return written.ok() && guard.Passes(count);
  });
  SEGUE_RETURN_IF_ERROR(written);
  if (!whole || size != announced) {
    return InvalidArgument("the body ended after " + std::to_string(size) + " of " +
                           std::to_string(announced) + " bytes, or came too slowly");
  }
  if (hasher.Finish().ToHex() != request.get_header_value("Segue-SHA256")) {
    return InvalidArgument("the body's SHA-256 is not the one that was announced");
  }
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, writer->Commit(request.path.substr(1)));
  if (outcome == PutOutcome::kAlreadyThere) {
    Refuse(412, InvalidArgument("an object of this name is there already"), response);
    return {};
  }
  response.status = 201;
  CleanUp();
  return {};
}

// What publishers that crashed have left, at most once an hour.
void ObjectService::CleanUp() {
  if (options_.write_token.empty()) return;
  const std::int64_t now = MonotonicSeconds();
  std::int64_t last = cleaned_s_.load();
  if (last != 0 && now - last < std::chrono::seconds(kCleanUpInterval).count()) return;
  if (!cleaned_s_.compare_exchange_strong(last, now)) return;
  // Of no use to whoever puts an object just now: what stays is removed the next time.
  (void)store_.RemoveStaleTemporaries(kStaleAge);
}

StoreServerStatistics ObjectService::statistics() const {
  return {.requests = requests_,
          .refused = refused_,
          .sent_bytes = sent_bytes_,
          .sent_payload_bytes = sent_payload_bytes_,
          .received_bytes = received_bytes_};
}

void ObjectService::GetMetrics(httplib::Response& response) const {
  const StoreServerStatistics now = statistics();
  std::string text;
  const auto add = [&](const char* name, const char* help, std::uint64_t value) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " counter\n" + name +
            " " + std::to_string(value) + "\n";
  };
  add("segue_store_requests_total", "Requests.", now.requests);
  add("segue_store_refused_total", "Requests answered with 400 and above.", now.refused);
  add("segue_store_sent_bytes_total", "Bytes of objects sent.", now.sent_bytes);
  add("segue_store_sent_payload_bytes_total", "Bytes of payloads among them.",
      now.sent_payload_bytes);
  add("segue_store_received_bytes_total", "Bytes of objects received.", now.received_bytes);
  response.status = 200;
  response.set_content(text, "text/plain; version=0.0.4");
}

}  // namespace segue
