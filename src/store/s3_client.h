// SPDX-License-Identifier: Apache-2.0
//
// S3Client: one bucket of an S3 server: where it is, who we are, and signed requests to it. Secrets
// come from the usual environment variables and go into signatures alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "segue/status.h"
#include "store/http_client.h"
#include "store/http_url.h"
#include "store/sigv4.h"
#include "store/xml.h"

namespace segue {

struct S3Options {
  std::string url;  // "s3://BUCKET/PREFIX", for messages.
  std::string bucket;
  std::string prefix;  // Of all keys: "" or "a/b/".
  HttpUrl endpoint;    // Path "" (the bucket is in the host) or "/BUCKET".
  std::string region;
  AwsCredentials credentials;
  // Whether a server that ignores `If-None-Match: *` will do: then two publishers must not write at
  // the same time.
  bool unconditional = false;
  HttpClient::Options client;
  std::function<std::int64_t()> unix_seconds;  // The clock; that of the system where not set.

  // From "s3://BUCKET[/PREFIX]" and the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
  // AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL,
  // SEGUE_S3_UNCONDITIONAL.
  static Result<S3Options> FromEnvironment(const std::string& url);
};

// What a request is about. `key` is the whole key; empty: the bucket itself.
struct S3Request {
  std::string method = "GET";
  std::string key;
  std::vector<std::pair<std::string, std::string>> query;
  std::vector<std::string> fields;                                 // Not signed.
  std::vector<std::pair<std::string, std::string>> signed_fields;  // Names in lower case.
  bool has_body = false;
  std::uint64_t body_size = 0;
  std::string body_hash;  // SHA-256 in hexadecimal; of nothing where there is no body.
  std::function<Status(std::uint64_t offset, MutableByteSpan target)> body;
};

// Thread-safe.
class S3Client {
 public:
  explicit S3Client(const S3Options& options) : options_(options), http_(options.client) {}

  const S3Options& options() const { return options_; }
  HttpClient& http() { return http_; }
  // The whole key of an object or folder.
  std::string Key(const std::string& name) const { return options_.prefix + name; }
  std::int64_t Now() const;

  HttpRequest Sign(const S3Request& request) const;
  // Again while it may be better later; see PerformPatiently().
  HttpReply Perform(const S3Request& request, bool* ambiguous = nullptr);
  // The same where the answer of 2xx is XML; `what` begins messages. The root may be an <Error>.
  Result<XmlElement> PerformXml(const S3Request& request, const std::string& what,
                                HttpReply* reply = nullptr);

 private:
  const S3Options options_;
  HttpClient http_;
};

// StatusOfReply() with the code and the sentence of the server's <Error>, where there is one.
Status StatusOfS3Reply(const HttpReply& reply, const std::string& what);
// "NoSuchKey: The specified key does not exist."
std::string DescribeS3Error(const XmlElement& error);

}  // namespace segue
