// SPDX-License-Identifier: Apache-2.0
//
// Signature Version 4: canonical request, string to sign, derived key, signature.
#include "store/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/check.h"
#include "base/hash.h"

namespace segue {
namespace {

constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";
constexpr const char* kService = "s3";

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string Hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, 32> sum{};
  unsigned size = 0;
  const unsigned char* const done =
      ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), sum.data(), &size);
  SEGUE_CHECK(done != nullptr && size == sum.size());
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

// Every field that is signed, sorted by name.
Fields AllFields(const SignedRequest& request, const AwsCredentials& credentials,
                 const std::string& date) {
  Fields fields = request.fields;
  fields.emplace_back("host", request.host);
  fields.emplace_back("x-amz-content-sha256", request.payload_hash);
  fields.emplace_back("x-amz-date", date);
  if (!credentials.session_token.empty()) {
    fields.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::sort(fields.begin(), fields.end());
  return fields;
}

std::string SignedNames(const Fields& fields) {
  std::string names;
  for (const auto& [name, value] : fields) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string CanonicalRequest(const SignedRequest& request, const Fields& fields) {
  std::string text =
      request.method + "\n" + UriEncode(request.path, true) + "\n" + CanonicalQuery(request) + "\n";
  for (const auto& [name, value] : fields) {
    text += name;
    text += ':';
    text += value;
    text += '\n';
  }
  return text + "\n" + SignedNames(fields) + "\n" + request.payload_hash;
}

}  // namespace

std::string AmazonDate(std::int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  SEGUE_CHECK(::gmtime_r(&time, &parts) != nullptr);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return {text.data(), size};
}

std::string UriEncode(std::string_view text, bool keep_slashes) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += digits[byte >> 4];
    encoded += digits[byte & 15];
  }
  return encoded;
}

std::string CanonicalQuery(const SignedRequest& request) {
  Fields query;
  query.reserve(request.query.size());
  for (const auto& [name, value] : request.query) {
    query.emplace_back(UriEncode(name, false), UriEncode(value, false));
  }
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) {
    if (!text.empty()) text += '&';
    text += name;
    text += '=';
    text += value;
  }
  return text;
}

std::vector<std::string> SignSigV4(const SignedRequest& request, const AwsCredentials& credentials,
                                   const std::string& region, const std::string& date) {
  const Fields fields = AllFields(request, credentials, date);
  const std::string day = date.substr(0, 8);
  const std::string scope = day + "/" + region + "/" + kService + "/aws4_request";
  const std::string to_sign = std::string(kAlgorithm) + "\n" + date + "\n" + scope + "\n" +
                              HashSha256(AsBytes(CanonicalRequest(request, fields))).ToHex();
  std::string key = Hmac("AWS4" + credentials.secret_key, day);
  for (const std::string& part : {region, std::string(kService), std::string("aws4_request")}) {
    key = Hmac(key, part);
  }
  const std::string signature = ToHex(AsBytes(Hmac(key, to_sign)));
  std::vector<std::string> headers = {"x-amz-content-sha256: " + request.payload_hash,
                                      "x-amz-date: " + date};
  if (!credentials.session_token.empty()) {
    headers.push_back("x-amz-security-token: " + credentials.session_token);
  }
  headers.push_back("Authorization: " + std::string(kAlgorithm) +
                    " Credential=" + credentials.access_key + "/" + scope +
                    ", SignedHeaders=" + SignedNames(fields) + ", Signature=" + signature);
  return headers;
}

}  // namespace segue
