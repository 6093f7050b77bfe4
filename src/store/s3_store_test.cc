// SPDX-License-Identifier: Apache-2.0
//
// S3Store against servers that say exactly this or that (case G6), and, where tests/e2e has started
// an S3 server, against the suite that every transport passes.
#include "store/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/hash.h"
#include "store/s3_client.h"
#include "store/s3_writer.h"
#include "store/testing.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kTwoParts = limits::kS3PartSize + 1000;

// A bucket that this test's own server keeps, in memory; `before` may answer in its place.
class FakeBucket {
 public:
  using Before = std::function<std::optional<std::string>(const std::string& request)>;

  explicit FakeBucket(Before before = {})
      : before_(std::move(before)),
        server_([this](const std::string& request) { return Answer(request); }) {}

  std::unique_ptr<S3Store> Open(const S3Options& changes = {}) {
    S3Options options = changes;
    options.url = "s3://bucket/p";
    options.bucket = "bucket";
    options.prefix = "p/";
    options.endpoint = ParseHttpUrl(server_.url() + "/bucket").value();
    options.region = "us-east-1";
    options.credentials = {"key-id", "secret-key", ""};
    options.client.retry_wait = std::chrono::milliseconds(1);
    return S3Store::Open(options).value();
  }

  // The objects, by key.
  std::map<std::string, std::string> objects;
  std::map<std::string, std::string> hashes;
  std::map<int, std::string> parts;  // Of the one upload.
  bool aborted = false;
  bool honours_condition = true;

  // Requests whose first line holds `text`.
  int Count(const std::string& text) const {
    const auto requests = server_.requests();
    return static_cast<int>(
        std::count_if(requests.begin(), requests.end(), [&](const std::string& request) {
          return request.substr(0, request.find("\r\n")).find(text) != std::string::npos;
        }));
  }
  std::vector<std::string> requests() const { return server_.requests(); }

  static std::string Xml(const std::string& text) { return ScriptedServer::Whole("200 OK", text); }

 private:
  static std::string Field(const std::string& request, const std::string& name) {
    const std::size_t at = request.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return request.substr(begin, request.find("\r\n", begin) - begin);
  }

  std::string Answer(const std::string& request) {
    if (before_) {
      if (auto answer = before_(request)) return *answer;
    }
    const std::string method = request.substr(0, request.find(' '));
    const std::string target =
        request.substr(method.size() + 1, request.find(" HTTP/") - method.size() - 1);
    const std::size_t mark = std::min(target.find('?'), target.size());
    const std::string query = target.substr(mark);
    const std::string body = request.substr(request.find("\r\n\r\n") + 4);
    if (target.substr(0, mark) == "/bucket") {
      return Xml("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
    }
    const std::string key = target.substr(8, mark - 8);
    const bool taken = objects.contains(key);
    const bool refused = honours_condition && taken && !Field(request, "If-None-Match").empty();
    if (method == "HEAD") return Head(key);
    if (method == "DELETE") {
      aborted = true;
      return ScriptedServer::Whole("204 No Content", "");
    }
    if (query == "?uploads=") {
      hashes["upload"] = Field(request, kS3HashField);
      return Xml(
          "<InitiateMultipartUploadResult><UploadId>u 1</UploadId>"
          "</InitiateMultipartUploadResult>");
    }
    if (query.starts_with("?partNumber=")) {
      parts[query[12] - '0'] = body;
      return ScriptedServer::Whole("200 OK", "", "ETag: \"part-14\"\r\n");
    }
    if (refused) return ScriptedServer::Whole("412 Precondition Failed", "");
    if (method == "POST") {
      for (const auto& [number, part] : parts) objects[key] += part;
      hashes[key] = hashes["upload"];
      return Xml(
          "<CompleteMultipartUploadResult><ETag>\"abc-14\"</ETag>"
          "</CompleteMultipartUploadResult>");
    }
    objects[key] = body;
    hashes[key] = Field(request, kS3HashField);
    return ScriptedServer::Whole("200 OK", "", "ETag: \"abc\"\r\n");
  }

  std::string Head(const std::string& key) const {
    const auto found = objects.find(key);
    if (found == objects.end()) return ScriptedServer::Whole("404 Not Found", "");
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(found->second.size()) +
           "\r\nETag: \"abc-14\"\r\n" + kS3HashField + ": " + hashes.at(key) + "\r\n\r\n";
  }

  const Before before_;
  ScriptedServer server_;
};

std::string Big() { return std::string(AsText(Pattern(5, kTwoParts))); }

TEST(S3StoreTest, PutsWithConditionHashAndSignature) {
  FakeBucket bucket;
  EXPECT_EQ(bucket.Open()->PutIfAbsent("a/b", AsBytes("hello")).value(), PutOutcome::kCreated);
  EXPECT_EQ(bucket.objects.at("p/a/b"), "hello");
  std::string put;
  for (const std::string& request : bucket.requests()) {
    if (request.starts_with("PUT /bucket/p/a/b ")) put = request;
    EXPECT_THAT(request, Not(HasSubstr("secret-key")));
  }
  EXPECT_THAT(put, AllOf(HasSubstr("If-None-Match: *\r\n"),
                         HasSubstr("x-amz-content-sha256: 2cf24dba5fb0a30e"),
                         HasSubstr("Authorization: AWS4-HMAC-SHA256 Credential=key-id/"),
                         HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date;"
                                   "x-amz-meta-segue-sha256, ")));
}

TEST(S3StoreTest, WhatIsThereIsNotSentAgain) {
  FakeBucket bucket;
  bucket.objects["p/a"] = "other";
  bucket.hashes["p/a"] = "";
  EXPECT_EQ(bucket.Open()->PutIfAbsent("a", AsBytes("hello")).value(), PutOutcome::kAlreadyThere);
  EXPECT_EQ(bucket.Count("PUT "), 0);
}

TEST(S3StoreTest, AServerWithoutTheConditionIsFoundOut) {
  FakeBucket bucket;
  bucket.honours_condition = false;
  const Status status = bucket.Open()->PutIfAbsent("a", AsBytes("hello")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("SEGUE_S3_UNCONDITIONAL"));
  EXPECT_FALSE(bucket.objects.contains("p/a"));
  S3Options options;
  options.unconditional = true;
  EXPECT_EQ(bucket.Open(options)->PutIfAbsent("a", AsBytes("x")).value(), PutOutcome::kCreated);
  EXPECT_EQ(bucket.Open(options)->PutIfAbsent("a", AsBytes("y")).value(),
            PutOutcome::kAlreadyThere);
}

TEST(S3StoreTest, TheConditionIsAskedForOnce) {
  FakeBucket bucket;
  const auto store = bucket.Open();
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_EQ(store->PutIfAbsent(name, AsBytes("x")).value(), PutOutcome::kCreated);
  }
  EXPECT_EQ(bucket.Count(kS3ProbeName), 2);
  EXPECT_EQ(bucket.Open()->PutIfAbsent("d", AsBytes("x")).value(), PutOutcome::kCreated);
  EXPECT_EQ(bucket.Count(kS3ProbeName), 3);
}

TEST(S3StoreTest, ALostAnswerToAPut) {
  bool lost = false;
  FakeBucket losing([&](const std::string& request) -> std::optional<std::string> {
    if (!request.starts_with("PUT /bucket/p/a ") || std::exchange(lost, true)) return std::nullopt;
    losing.objects["p/a"] = "hello";
    losing.hashes["p/a"] = HashSha256(AsBytes("hello")).ToHex();
    return "";
  });
  EXPECT_EQ(losing.Open()->PutIfAbsent("a", AsBytes("hello")).value(), PutOutcome::kCreated);
  EXPECT_TRUE(lost);
}

TEST(S3StoreTest, APutThatTookNothingIsNoSuccess) {
  FakeBucket bucket([](const std::string& request) -> std::optional<std::string> {
    if (!request.starts_with("PUT /bucket/p/a ")) return std::nullopt;
    return ScriptedServer::Whole("200 OK", "");
  });
  EXPECT_EQ(bucket.Open()->PutIfAbsent("a", AsBytes("x")).status().code(), StatusCode::kCorruption);
}

TEST(S3StoreTest, CaseG6PartsBecomeOneObject) {
  FakeBucket bucket;
  EXPECT_EQ(bucket.Open()->PutIfAbsent("big", AsBytes(Big())).value(), PutOutcome::kCreated);
  EXPECT_EQ(bucket.parts.size(), 2u);
  EXPECT_EQ(bucket.parts[1].size(), limits::kS3PartSize);
  // Its ETag is "abc-14", no hash of anything, and nobody minds.
  EXPECT_EQ(bucket.objects.at("p/big"), Big());
  EXPECT_FALSE(bucket.aborted);
  std::string completion;
  for (const std::string& request : bucket.requests()) {
    if (request.starts_with("POST ")) completion = request;
  }
  EXPECT_THAT(completion, AllOf(HasSubstr("If-None-Match: *"), HasSubstr("uploadId=u%201"),
                                HasSubstr("<PartNumber>2</PartNumber><ETag>&quot;part-14&quot;")));
}

TEST(S3StoreTest, CaseG6AnUploadThatStopsIsAborted) {
  FakeBucket bucket([](const std::string& request) -> std::optional<std::string> {
    if (request.find("?partNumber=2&") == std::string::npos) return std::nullopt;
    return ScriptedServer::Whole("403 Forbidden",
                                 "<Error><Code>AccessDenied</Code><Message>no</Message></Error>");
  });
  const Status status = bucket.Open()->PutIfAbsent("big", AsBytes(Big())).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("AccessDenied: no"));
  EXPECT_TRUE(bucket.aborted);
  EXPECT_FALSE(bucket.objects.contains("p/big"));
}

std::optional<std::string> FailToComplete(const std::string& request, const std::string& code) {
  if (!request.starts_with("POST /bucket/p/big?uploadId")) return std::nullopt;
  return FakeBucket::Xml("<?xml version=\"1.0\"?><Error><Code>" + code +
                         "</Code><Message>not now</Message></Error>");
}

TEST(S3StoreTest, CaseG6CompletionThatFailsWithStatus200) {
  for (const std::string code : {"InternalError", "InvalidPart"}) {
    FakeBucket bucket([&](const std::string& request) { return FailToComplete(request, code); });
    const Status status = bucket.Open()->PutIfAbsent("big", AsBytes(Big())).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(code + ": not now"));
    EXPECT_TRUE(bucket.aborted);
    EXPECT_FALSE(bucket.objects.contains("p/big"));
    EXPECT_EQ(bucket.Count("POST /bucket/p/big?uploadId"),
              code == "InternalError" ? limits::kStoreTryCountMax : 1);
  }
}

TEST(S3StoreTest, CaseG6CompletionThatFailsOnce) {
  bool failed = false;
  FakeBucket bucket([&](const std::string& request) -> std::optional<std::string> {
    auto answer = FailToComplete(request, "InternalError");
    if (!answer || std::exchange(failed, true)) return std::nullopt;
    return answer;
  });
  EXPECT_EQ(bucket.Open()->PutIfAbsent("big", AsBytes(Big())).value(), PutOutcome::kCreated);
}

TEST(S3StoreTest, CaseG6AnotherWasFasterThanTheCompletion) {
  FakeBucket bucket([&](const std::string& request) -> std::optional<std::string> {
    if (request.starts_with("POST /bucket/p/big?uploadId")) {
      bucket.objects["p/big"] = "other";
      bucket.hashes["p/big"] = "other";
    }
    return std::nullopt;
  });
  EXPECT_EQ(bucket.Open()->PutIfAbsent("big", AsBytes(Big())).value(), PutOutcome::kAlreadyThere);
  EXPECT_EQ(bucket.objects["p/big"], "other");
  EXPECT_TRUE(bucket.aborted);
}

TEST(S3StoreTest, ListsPageAfterPage) {
  int pages = 0;
  FakeBucket bucket([&](const std::string& request) -> std::optional<std::string> {
    if (request.find("prefix=p%2Ff%2F") == std::string::npos) return std::nullopt;
    EXPECT_THAT(request, HasSubstr("delimiter=%2F"));
    if (request.find("continuation-token") == std::string::npos) {
      ++pages;
      return FakeBucket::Xml(
          "<ListBucketResult><IsTruncated>true</IsTruncated>"
          "<NextContinuationToken>t/+ 1</NextContinuationToken>"
          "<Contents><Key>p/f/</Key></Contents><Contents><Key>p/f/b</Key></Contents>"
          "<Contents><Key>p/f/.hidden</Key></Contents></ListBucketResult>");
    }
    EXPECT_THAT(request, HasSubstr("continuation-token=t%2F%2B%201&"));
    return FakeBucket::Xml(
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/f/a</Key></Contents>"
        "<CommonPrefixes><Prefix>p/f/c/</Prefix></CommonPrefixes></ListBucketResult>");
  });
  const auto store = bucket.Open();
  EXPECT_THAT(store->List("f").value(), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(store->ListFolders("f").value(), ::testing::ElementsAre("c"));
  EXPECT_EQ(pages, 2);
}

TEST(S3StoreTest, ListingsThatAreNone) {
  const std::string truncated = "<IsTruncated>true</IsTruncated>";
  const std::string next = "<NextContinuationToken>same</NextContinuationToken>";
  for (const std::string& text :
       {std::string(), std::string("<Error/>"),
        std::string("<ListBucketResult><Contents><Key>q/x</Key></Contents></ListBucketResult>"),
        "<ListBucketResult>" + truncated + "</ListBucketResult>",
        "<ListBucketResult>" + truncated + next + "</ListBucketResult>"}) {
    FakeBucket bucket([&](const std::string& request) -> std::optional<std::string> {
      if (request.find("prefix=p%2Ff%2F") == std::string::npos) return std::nullopt;
      return FakeBucket::Xml(text);
    });
    EXPECT_EQ(bucket.Open()->List("f").status().code(), StatusCode::kCorruption) << text;
  }
}

// A listing that never ends: tokens that come round in a circle, or are new each time.
TEST(S3StoreTest, EndlessListings) {
  const auto pages_of = [](const std::function<std::string(int)>& token) {
    return [token, page = 0](const std::string& request) mutable -> std::optional<std::string> {
      if (request.find("prefix=p%2Ff%2F") == std::string::npos) return std::nullopt;
      return FakeBucket::Xml(
          "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" +
          token(page++) + "</NextContinuationToken></ListBucketResult>");
    };
  };
  {
    FakeBucket circle(pages_of([](int page) { return "t" + std::to_string(page % 3); }));
    EXPECT_EQ(circle.Open()->List("f").status().code(), StatusCode::kCorruption);
    EXPECT_EQ(circle.Count("prefix=p%2Ff%2F"), 4);
  }
  {
    FakeBucket endless(pages_of([](int page) { return "t" + std::to_string(page); }));
    EXPECT_EQ(endless.Open()->List("f").status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(endless.Count("prefix=p%2Ff%2F"), limits::kS3PageCountMax);
  }
  FakeBucket large(pages_of([](int) { return std::string(5000, 't'); }));
  EXPECT_EQ(large.Open()->List("f").status().code(), StatusCode::kCorruption);
}

TEST(S3StoreTest, OldUploadsAreAborted) {
  FakeBucket bucket([](const std::string& request) -> std::optional<std::string> {
    if (request.find("?prefix=p%2F&uploads=") == std::string::npos) return std::nullopt;
    return FakeBucket::Xml(
        "<ListMultipartUploadsResult>"
        "<Upload><Key>p/old</Key><UploadId>1</UploadId>"
        "<Initiated>2026-11-29T00:00:00.000Z</Initiated></Upload>"
        "<Upload><Key>p/new</Key><UploadId>2</UploadId>"
        "<Initiated>2026-11-29T23:59:59Z</Initiated></Upload>"
        "<Upload><Key>q/old</Key><UploadId>3</UploadId>"
        "<Initiated>2026-11-29T00:00:00Z</Initiated></Upload></ListMultipartUploadsResult>");
  });
  S3Options options;
  options.unix_seconds = [] { return *ParseS3Time("2026-11-30T00:00:00Z"); };
  ASSERT_TRUE(bucket.Open(options)->RemoveStaleTemporaries(std::chrono::hours(24)).ok());
  EXPECT_EQ(bucket.Count("DELETE "), 1);
  EXPECT_EQ(bucket.Count("DELETE /bucket/p/old?uploadId=1 "), 1);
}

TEST(S3StoreTest, Times) {
  EXPECT_EQ(ParseS3Time("1970-01-02T00:00:01.000Z"), 86'401);
  EXPECT_EQ(ParseS3Time("2013-05-24T00:00:00Z"), 1'369'353'600);
  for (const char* const text : {"", "Z", "2013-05-24", "2013-05-24T00:00:00", "yesterday, 10 Z"}) {
    EXPECT_EQ(ParseS3Time(text), std::nullopt) << text;
  }
}

class S3OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : kNames) {
      const char* const value = std::getenv(name);
      before_[name] = value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
    ::setenv("AWS_ACCESS_KEY_ID", "key-id", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "hunter2", 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }

 private:
  static constexpr const char* kNames[] = {
      "AWS_ACCESS_KEY_ID",  "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
      "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3",   "AWS_ENDPOINT_URL",  "SEGUE_S3_UNCONDITIONAL"};
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(S3OptionsTest, WhereAndWho) {
  const S3Options plain = S3Options::FromEnvironment("s3://bucket/a/b/").value();
  EXPECT_EQ(plain.endpoint.Text(), "https://bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(plain.prefix, "a/b/");
  EXPECT_FALSE(plain.unconditional);
  ::setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
  ::setenv("AWS_SESSION_TOKEN", "session", 1);
  const S3Options dotted = S3Options::FromEnvironment("s3://my.bucket").value();
  EXPECT_EQ(dotted.endpoint.Text(), "https://s3.eu-west-1.amazonaws.com/my.bucket");
  EXPECT_EQ(dotted.prefix, "");
  EXPECT_EQ(dotted.credentials.session_token, "session");
  ::setenv("AWS_REGION", "us-west-2", 1);
  ::setenv("AWS_ENDPOINT_URL", "http://wrong:1", 1);
  ::setenv("AWS_ENDPOINT_URL_S3", "http://minio:80/", 1);
  const S3Options custom = S3Options::FromEnvironment("s3://bucket/x").value();
  EXPECT_EQ(custom.region, "us-west-2");
  EXPECT_EQ(custom.endpoint.Text(), "http://minio/bucket");
}

TEST_F(S3OptionsTest, WhatIsRefused) {
  for (const char* const url : {"s3:", "s3://", "s3://ab", "s3://Bucket", "s3://-ab", "s3://a..b",
                                "s3://bucket/../x", "s3://bucket//x", "s3://bucket/a b"}) {
    EXPECT_EQ(S3Options::FromEnvironment(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  ::setenv("AWS_REGION", "us east", 1);
  EXPECT_FALSE(S3Options::FromEnvironment("s3://bucket").ok());
  ::unsetenv("AWS_REGION");
  ::setenv("AWS_ENDPOINT_URL", "minio:9000", 1);
  EXPECT_FALSE(S3Options::FromEnvironment("s3://bucket").ok());
  ::unsetenv("AWS_ENDPOINT_URL");
  ::setenv("AWS_SESSION_TOKEN", "a\r\nb", 1);
  EXPECT_FALSE(S3Options::FromEnvironment("s3://bucket").ok());
  ::unsetenv("AWS_SESSION_TOKEN");
  ::unsetenv("AWS_ACCESS_KEY_ID");
  const Status status = S3Options::FromEnvironment("s3://bucket").status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), Not(HasSubstr("hunter2"))));
}

// SEGUE_TEST_S3_BUCKET names a bucket that may be written to, the AWS_... variables where it is.
class S3Transport {
 public:
  static bool IsThere() { return std::getenv("SEGUE_TEST_S3_BUCKET") != nullptr; }
  std::unique_ptr<Store> Open() { return OpenStore(url_, /*create=*/true).value(); }

 private:
  static int Next() {
    static std::atomic<int> count{0};
    return count++;
  }
  const std::string url_ = "s3://" + std::string(std::getenv("SEGUE_TEST_S3_BUCKET")) + "/run-" +
                           std::to_string(::getpid()) + "/" + std::to_string(Next());
};

INSTANTIATE_TYPED_TEST_SUITE_P(S3, StoreConformance, S3Transport);

}  // namespace
}  // namespace segue
