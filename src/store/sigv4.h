// SPDX-License-Identifier: Apache-2.0
//
// AWS Signature Version 4: the header that proves a request to an S3 server. By our own hand, since
// libcurl's does not sort the query and leaves out the hash of the body, which S3 wants signed.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace segue {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // Empty: none.
};

// What is signed. Nothing in it is escaped yet.
struct SignedRequest {
  std::string method;
  std::string host;  // As in the Host field, with the port where one is sent.
  std::string path;  // "/" or "/bucket/a/b".
  std::vector<std::pair<std::string, std::string>> query;   // In any order.
  std::vector<std::pair<std::string, std::string>> fields;  // More to sign: names in lower case.
  std::string payload_hash;                                 // SHA-256 of the body in hexadecimal.
};

// "20130524T000000Z" for seconds since 1970.
std::string AmazonDate(std::int64_t unix_seconds);

// Everything but A-Z a-z 0-9 - . _ ~ (and '/' where `keep_slashes`) as %XX.
std::string UriEncode(std::string_view text, bool keep_slashes);
// "a=b&c=d", sorted and escaped: what stands in the URL.
std::string CanonicalQuery(const SignedRequest& request);

// The header fields to send ("Name: value"), Authorization among them; Host and the fields of
// `request` are the caller's to send. `date` as AmazonDate() gives it.
std::vector<std::string> SignSigV4(const SignedRequest& request, const AwsCredentials& credentials,
                                   const std::string& region, const std::string& date);

}  // namespace segue
