// SPDX-License-Identifier: Apache-2.0
//
// S3Client: environment, addresses, signed requests, answers in XML.
#include "store/s3_client.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/hash.h"
#include "store/store.h"

namespace segue {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string FirstOf(const char* name, const char* other, const std::string& otherwise) {
  std::string value = Environment(name);
  if (value.empty()) value = Environment(other);
  return value.empty() ? otherwise : value;
}

bool IsBucket(std::string_view bucket) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  const auto edge = [&](char c) { return plain(c) && c != '-' && c != '.'; };
  return bucket.size() >= 3 && bucket.size() <= 63 &&
         std::all_of(bucket.begin(), bucket.end(), plain) && edge(bucket.front()) &&
         edge(bucket.back()) && bucket.find("..") == std::string_view::npos;
}

bool IsRegion(std::string_view region) {
  return !region.empty() && region.size() <= 64 &&
         std::all_of(region.begin(), region.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

bool IsSendable(std::string_view secret) {
  return std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Status TakeName(S3Options& options) {
  std::string_view rest = options.url;
  if (!rest.starts_with("s3://")) return InvalidArgument("expected s3://BUCKET[/PREFIX]");
  rest.remove_prefix(5);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  options.bucket = std::string(rest.substr(0, slash));
  std::string_view prefix = rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (!IsBucket(options.bucket)) {
    return InvalidArgument(
        "the store's URL names no bucket that can be (3 to 63 of a-z 0-9 . -); expected "
        "s3://BUCKET[/PREFIX]");
  }
  if (prefix.empty()) return {};
  const Status checked = CheckObjectName(prefix.substr(1));
  if (!checked.ok()) return checked.WithContext("the prefix of the store's URL");
  options.prefix = std::string(prefix.substr(1)) + "/";
  return {};
}

// libcurl leaves a scheme's own port out of the Host field, which is signed.
void DropDefaultPort(HttpUrl& url) {
  const std::string port = url.scheme == "https" ? ":443" : ":80";
  if (url.authority.ends_with(port)) url.authority.resize(url.authority.size() - port.size());
}

// A server of one's own has the bucket in the path, Amazon's in the host; one with a dot is not
// covered by their certificate and stays in the path.
Status TakeEndpoint(S3Options& options) {
  const std::string custom = FirstOf("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "");
  if (!custom.empty()) {
    const Result<HttpUrl> url = ParseHttpUrl(custom);
    if (!url.ok()) return url.status().WithContext("AWS_ENDPOINT_URL(_S3)");
    options.endpoint = url.value();
    options.endpoint.path += "/" + options.bucket;
    DropDefaultPort(options.endpoint);
    return {};
  }
  const std::string host = "s3." + options.region + ".amazonaws.com";
  const bool in_path = options.bucket.find('.') != std::string::npos;
  options.endpoint = {.scheme = "https",
                      .authority = in_path ? host : options.bucket + "." + host,
                      .path = in_path ? "/" + options.bucket : ""};
  return {};
}

}  // namespace

Result<S3Options> S3Options::FromEnvironment(const std::string& url) {
  S3Options options;
  options.url = url;
  SEGUE_RETURN_IF_ERROR(TakeName(options));
  options.region = FirstOf("AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1");
  if (!IsRegion(options.region)) {
    return InvalidArgument("AWS_REGION is no region: expected a name like us-east-1");
  }
  SEGUE_RETURN_IF_ERROR(TakeEndpoint(options));
  options.credentials = {.access_key = Environment("AWS_ACCESS_KEY_ID"),
                         .secret_key = Environment("AWS_SECRET_ACCESS_KEY"),
                         .session_token = Environment("AWS_SESSION_TOKEN")};
  const AwsCredentials& credentials = options.credentials;
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return InvalidArgument(
        "store '" + url + "' needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment");
  }
  if (!IsSendable(credentials.access_key) || !IsSendable(credentials.session_token)) {
    return InvalidArgument("AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN holds what no header can");
  }
  options.unconditional = Environment("SEGUE_S3_UNCONDITIONAL") == "1";
  return options;
}

std::int64_t S3Client::Now() const {
  return options_.unix_seconds ? options_.unix_seconds() : std::int64_t{std::time(nullptr)};
}

HttpRequest S3Client::Sign(const S3Request& request) const {
  const HttpUrl& endpoint = options_.endpoint;
  SignedRequest to_sign;
  to_sign.method = request.method;
  to_sign.host = endpoint.authority;
  to_sign.path = endpoint.path + (request.key.empty() ? "" : "/" + request.key);
  if (to_sign.path.empty()) to_sign.path = "/";
  to_sign.query = request.query;
  to_sign.fields = request.signed_fields;
  to_sign.payload_hash = request.has_body ? request.body_hash : HashSha256({}).ToHex();
  HttpRequest http;
  http.method = request.method;
  http.url = endpoint.Origin() + UriEncode(to_sign.path, true);
  if (!request.query.empty()) http.url += "?" + CanonicalQuery(to_sign);
  http.fields = SignSigV4(to_sign, options_.credentials, options_.region, AmazonDate(Now()));
  for (const auto& [name, value] : request.signed_fields) {
    std::string field = name;
    field += ": ";
    field += value;
    http.fields.push_back(std::move(field));
  }
  http.fields.insert(http.fields.end(), request.fields.begin(), request.fields.end());
  http.has_body = request.has_body;
  http.body_size = request.body_size;
  http.body = request.body;
  return http;
}

HttpReply S3Client::Perform(const S3Request& request, bool* ambiguous) {
  return PerformPatiently(
      http_, [&] { return Sign(request); }, ambiguous);
}

Result<XmlElement> S3Client::PerformXml(const S3Request& request, const std::string& what,
                                        HttpReply* reply) {
  ByteVector text;
  const auto make = [&] {
    HttpRequest http = Sign(request);
    text.clear();
    http.on_body = [&](ByteSpan bytes) {
      if (bytes.size() > limits::kXmlSizeMax - text.size()) {
        return ResourceExhausted("the answer is over the limit of 8 MiB");
      }
      AppendBytes(text, bytes);
      return Status();
    };
    return http;
  };
  const HttpReply got = PerformPatiently(http_, make);
  if (reply != nullptr) *reply = got;
  SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(got, what));
  Result<XmlElement> root = ParseXml(text);
  if (!root.ok()) return root.status().WithContext(what);
  return root;
}

std::string DescribeS3Error(const XmlElement& error) {
  return QuotedReply(std::string(error.ChildText("Code")) + ": " +
                     std::string(error.ChildText("Message")));
}

Status StatusOfS3Reply(const HttpReply& reply, const std::string& what) {
  const Result<XmlElement> error = ParseXml(AsBytes(reply.error_text));
  if (!error.ok() || error->name != "Error") return StatusOfReply(reply, what);
  HttpReply named = reply;
  named.error_text = DescribeS3Error(error.value());
  return StatusOfReply(named, what);
}

}  // namespace segue
