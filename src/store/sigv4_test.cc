// SPDX-License-Identifier: Apache-2.0
//
// Signatures against the examples that Amazon's documentation publishes (key AKIAIOSFODNN7EXAMPLE,
// 24 May 2013); computed once more by hand with another program's HMAC.
#include "store/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

const AwsCredentials kExample = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                 ""};
constexpr const char* kDate = "20130524T000000Z";

SignedRequest Example(const std::string& method, const std::string& path) {
  SignedRequest request;
  request.method = method;
  request.host = "examplebucket.s3.amazonaws.com";
  request.path = path;
  request.payload_hash = HashSha256({}).ToHex();
  return request;
}

std::string Authorization(const SignedRequest& request) {
  return SignSigV4(request, kExample, "us-east-1", kDate).back();
}

TEST(SigV4Test, GetObject) {
  SignedRequest request = Example("GET", "/test.txt");
  request.fields = {{"range", "bytes=0-9"}};
  EXPECT_EQ(Authorization(request),
            "Authorization: AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4Test, PutObject) {
  SignedRequest request = Example("PUT", "/test$file.text");
  request.fields = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                    {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  request.payload_hash = HashSha256(AsBytes("Welcome to Amazon S3.")).ToHex();
  EXPECT_EQ(request.payload_hash,
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
  EXPECT_THAT(Authorization(request),
              HasSubstr("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(SigV4Test, BucketLifecycle) {
  SignedRequest request = Example("GET", "/");
  request.query = {{"lifecycle", ""}};
  EXPECT_THAT(Authorization(request),
              HasSubstr("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(SigV4Test, ListObjectsInAnyOrder) {
  SignedRequest request = Example("GET", "/");
  request.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_EQ(CanonicalQuery(request), "max-keys=2&prefix=J");
  EXPECT_THAT(Authorization(request),
              HasSubstr("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(SigV4Test, SessionTokenIsSignedAndSent) {
  AwsCredentials credentials = kExample;
  credentials.session_token = "session";
  const auto fields = SignSigV4(Example("GET", "/"), credentials, "us-east-1", kDate);
  EXPECT_THAT(fields, ::testing::Contains("x-amz-security-token: session"));
  EXPECT_THAT(fields.back(), HasSubstr("x-amz-date;x-amz-security-token"));
}

TEST(SigV4Test, EncodesAndDates) {
  EXPECT_EQ(UriEncode("a/b c~%+\xc3\xa9", false), "a%2Fb%20c~%25%2B%C3%A9");
  EXPECT_EQ(UriEncode("a/b", true), "a/b");
  EXPECT_EQ(AmazonDate(1369353600), kDate);
  EXPECT_EQ(AmazonDate(0), "19700101T000000Z");
}

}  // namespace
}  // namespace segue
