// SPDX-License-Identifier: Apache-2.0
//
// HttpStore against servers that say exactly this or that. Against the real one: src/server.
#include "store/http_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/testing.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kEmptyListing = R"({"objects":[],"folders":[]})";

// Opens a store at a server that answers the listing, and `answer` to everything else.
struct Fixture {
  explicit Fixture(ScriptedServer::Answer answer, const std::string& token = "")
      : server([answer = std::move(answer)](const std::string& request) {
          if (request.starts_with("GET /p/ ")) {
            return ScriptedServer::Whole("200 OK", kEmptyListing);
          }
          return answer(request);
        }) {
    HttpStore::Options options;
    options.url = server.url() + "/p";
    options.token = token;
    options.client.retry_wait = std::chrono::milliseconds(1);
    store = HttpStore::Open(options).value();
  }
  std::string Last() const { return server.requests().back(); }

  ScriptedServer server;
  std::unique_ptr<HttpStore> store;
};

// Answers in order, the last one for good.
ScriptedServer::Answer InOrder(std::vector<std::string> answers) {
  return [answers = std::move(answers), next = std::size_t{0}](const std::string&) mutable {
    const std::size_t index = std::min(next++, answers.size() - 1);
    return answers[index];
  };
}

TEST(HttpStoreTest, PutsWithConditionSizeAndHash) {
  Fixture it(InOrder({ScriptedServer::Whole("201 Created", "")}), "secret-token");
  EXPECT_EQ(it.store->PutIfAbsent("a/b", AsBytes("hello")).value(), PutOutcome::kCreated);
  EXPECT_THAT(
      it.Last(),
      AllOf(
          ::testing::StartsWith("PUT /p/a/b HTTP/1.1\r\n"), HasSubstr("If-None-Match: *\r\n"),
          HasSubstr("Content-Length: 5\r\n"), HasSubstr("Authorization: Bearer secret-token\r\n"),
          HasSubstr("Segue-SHA256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
                    "\r\n"),
          ::testing::EndsWith("\r\n\r\nhello")));
}

TEST(HttpStoreTest, TheTokenIsInNoMessage) {
  for (const char* const code : {"401 x", "403 x", "500 x", "302 x", "200 OK"}) {
    Fixture it(InOrder({ScriptedServer::Whole(code, "no")}), "secret-token");
    const Status status = it.store->PutIfAbsent("a", AsBytes("x")).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(), Not(HasSubstr("secret-token")));
  }
}

TEST(HttpStoreTest, AServerWithoutTheConditionIsRefused) {
  Fixture it(InOrder({ScriptedServer::Whole("200 OK", "")}));
  EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).status().code(), StatusCode::kCorruption);
}

TEST(HttpStoreTest, ALostAnswerToAPut) {
  const std::string created = ScriptedServer::Whole("201 Created", "");
  const std::string there = ScriptedServer::Whole("412 There", "");
  {  // Lost before it had its effect.
    Fixture it(InOrder({"", created}));
    EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).value(), PutOutcome::kCreated);
  }
  {  // Lost afterwards: what is there is ours.
    Fixture it(InOrder({"", there, ScriptedServer::Whole("200 OK", "x")}));
    EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).value(), PutOutcome::kCreated);
  }
  {  // Lost, and another was faster.
    Fixture it(InOrder({"", there, ScriptedServer::Whole("200 OK", "y")}));
    EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).value(), PutOutcome::kAlreadyThere);
  }
  {  // Not lost.
    Fixture it(InOrder({there}));
    EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).value(), PutOutcome::kAlreadyThere);
  }
}

TEST(HttpStoreTest, FullDisksAndReadOnlyServers) {
  const std::vector<std::pair<std::string, StatusCode>> codes = {
      {"507 Full", StatusCode::kResourceExhausted},
      {"413 Large", StatusCode::kResourceExhausted},
      {"403 Read-only", StatusCode::kInvalidArgument},
      {"428 Condition", StatusCode::kInvalidArgument}};
  for (const auto& [code, expected] : codes) {
    Fixture it(InOrder({ScriptedServer::Whole(code, "")}));
    EXPECT_EQ(it.store->PutIfAbsent("a", AsBytes("x")).status().code(), expected) << code;
    EXPECT_EQ(it.server.requests().size(), 2u) << code;
  }
}

TEST(HttpStoreTest, ListingsThatAreNone) {
  for (const char* const listing :
       {"", "[]", "{}", "<html>", R"({"objects":[1],"folders":[]})",
        R"({"objects":["../x"],"folders":[]})", R"({"objects":["a/b"],"folders":[]})",
        R"({"objects":[""],"folders":[]})", R"({"objects":{},"folders":[]})",
        R"({"objects":[],"folders":[]} x)"}) {
    Fixture it(InOrder({ScriptedServer::Whole("200 OK", listing)}));
    EXPECT_EQ(it.store->List("f").status().code(), StatusCode::kCorruption) << listing;
  }
  Fixture deep(InOrder({ScriptedServer::Whole("200 OK", std::string(1 << 20, '['))}));
  EXPECT_THAT(deep.store->List("f").status().message(),
              ::testing::HasSubstr("listing is nested more than 128 deep"));
  Fixture twice(
      InOrder({ScriptedServer::Whole("200 OK", R"({"objects":["a"],"folders":[],"objects":[]})")}));
  EXPECT_THAT(twice.store->List("f").status().message(),
              ::testing::HasSubstr("listing has the key 'objects' twice"));
  Fixture it(
      InOrder({ScriptedServer::Whole("200 OK", R"({"folders":["c"],"objects":["b","a"]})")}));
  EXPECT_THAT(it.store->List("f").value(), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(it.store->ListFolders("f").value(), ::testing::ElementsAre("c"));
  EXPECT_THAT(it.Last(), ::testing::StartsWith("GET /p/f/ HTTP/1.1\r\n"));
}

TEST(HttpStoreTest, AnAddressThatIsNoStore) {
  const ScriptedServer server(
      [](const std::string&) { return ScriptedServer::Whole("200 OK", "<html>Welcome</html>"); });
  HttpStore::Options options;
  options.url = server.url();
  const auto store = HttpStore::Open(options);
  EXPECT_EQ(store.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(store.status().message(), HasSubstr(options.url));
}

}  // namespace
}  // namespace segue
