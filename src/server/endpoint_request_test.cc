// SPDX-License-Identifier: Apache-2.0
//
// Bodies of requests: which are none, and what they ask of which lineage.
#include "server/endpoint_request.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

Result<EndpointRequest> Parse(const std::string& path, const std::string& body) {
  return EndpointRequest::Parse(*FindEndpoint("POST", path), body);
}

TEST(EndpointRequestTest, RefusesWhatTheTableDoesNotHave) {
  for (const char* const body :
       {"[]", "{", R"({"target_versoin": 7})", R"({"target_version": "7"})",
        R"({"target_version": -1})", R"({"target_versions": 7})", R"({"target_versions": [7]})",
        R"({"target_versions": {"policy": "7"}})", R"({"flush_cache": 1})"}) {
    EXPECT_EQ(Parse("/update_weights_from_gpu_delta", body).status().code(),
              StatusCode::kInvalidArgument)
        << body;
  }
  EXPECT_TRUE(Parse("/update_weights_from_gpu_delta", "").ok());
  EXPECT_TRUE(Parse("/update_weights_from_gpu_delta", R"({"target_version": null})").ok());
}

TEST(EndpointRequestTest, RefusesWhatCouldBeReadInTwoWaysOrCostsTooMuch) {
  const auto refusal = [](const std::string& body) {
    const Status status = Parse("/prepare_gpu_delta", body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body.substr(0, 80);
    return status.message();
  };
  EXPECT_EQ(refusal(R"({"target_version": 7, "target_version": 8})"),
            "the body has the key 'target_version' twice");
  EXPECT_EQ(refusal(R"({"target_versions": {"policy": 7, "policy": 8}})"),
            "the body has the key 'policy' twice");
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), "the body is nested more than 128 deep");
  std::string wide = "{\"target_versions\":[0";
  for (int i = 0; i < 10'000; ++i) wide += ",0";
  EXPECT_EQ(refusal(wide + "]}"), "the body has more than 10000 values");
}

GroupRequest Asked(const std::string& body, const std::vector<std::string>& held) {
  const auto request = Parse("/prepare_gpu_delta", body).value().Update(held);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status().ToString();
  return request.ok() ? request.value() : GroupRequest();
}

TEST(EndpointRequestTest, OfOneLineageNeedsNoName) {
  const GroupRequest request = Asked(R"({"target_version": 7, "base_version": 6, "plan_digest": "p",
                "manifest_sha256": "m", "manifest_path": "a/b/0000000007.json"})",
                                     {"run"});
  ASSERT_EQ(request.lineages.size(), 1u);
  const PrepareRequest& part = request.lineages.at("run");
  EXPECT_EQ(part.target_version, 7u);
  EXPECT_EQ(part.base_version, 6u);
  EXPECT_EQ(part.plan_digest, "p");
  EXPECT_EQ(part.manifest_sha256, "m");
  EXPECT_FALSE(Asked("{}", {"run"}).lineages.at("run").target_version);
  EXPECT_EQ(Parse("/prepare_gpu_delta", R"({"stream_id": "other"})")
                .value()
                .Update({"run"})
                .status()
                .code(),
            StatusCode::kVersionMismatch);
}

TEST(EndpointRequestTest, OfSeveralLineages) {
  const std::vector<std::string> held = {"policy", "draft"};
  EXPECT_TRUE(Asked("{}", held).lineages.empty());
  EXPECT_EQ(Asked(R"({"target_version": 7})", held).target_version, 7u);
  const GroupRequest named = Asked(R"({"target_versions": {"draft": 3, "policy": 8}})", held);
  EXPECT_FALSE(named.target_version);
  EXPECT_EQ(named.lineages.at("draft").target_version, 3u);
  EXPECT_EQ(named.lineages.at("policy").target_version, 8u);
  const GroupRequest alone =
      Asked(R"({"stream_id": "draft", "target_version": 3, "base_version": 2})", held);
  EXPECT_EQ(alone.lineages.size(), 1u);
  EXPECT_EQ(alone.lineages.at("draft").base_version, 2u);
  for (const char* const body :
       {R"({"base_version": 1})", R"({"plan_digest": "p"})", R"({"manifest_sha256": "m"})",
        R"({"manifest_path": "7.json"})", R"({"target_versions": {}})",
        R"({"target_versions": {"draft": 1}, "target_version": 1})",
        R"({"target_versions": {"draft": 1}, "stream_id": "draft"})",
        R"({"target_versions": {"draft": 1}, "base_version": 1})",
        R"({"stream_id": "draft", "manifest_path": "no number"})",
        R"({"stream_id": "draft", "target_version": 2, "manifest_path": "3.json"})"}) {
    EXPECT_EQ(Parse("/prepare_gpu_delta", body).value().Update(held).status().code(),
              StatusCode::kInvalidArgument)
        << body;
  }
}

TEST(EndpointRequestTest, SaysWhatIsAskedFor) {
  const auto text = [](const std::string& body) {
    return Parse("/update_weights_from_gpu_delta", body).value().TargetText();
  };
  EXPECT_EQ(text("{}"), "newest");
  EXPECT_EQ(text(R"({"target_version": 7})"), "7");
  EXPECT_EQ(text(R"({"manifest_path": "0000000007.json"})"), "7");
  EXPECT_EQ(text(R"({"stream_id": "draft"})"), "draft=newest");
  EXPECT_EQ(text(R"({"target_versions": {"policy": 8, "draft": 3}})"), "draft=3,policy=8");
}

}  // namespace
}  // namespace segue
