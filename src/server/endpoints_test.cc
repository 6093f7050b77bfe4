// SPDX-License-Identifier: Apache-2.0
//
// Endpoints without sockets: what is refused before a receiver is asked, the table, the document
// and the metrics. With a receiver behind them: tests/e2e/test_live.py.
#include "server/endpoints.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/limits.h"
#include "checkpoint/testing.h"
#include "server/endpoint_table.h"
#include "server/metrics.h"

namespace segue {
namespace {

using Json = nlohmann::json;

TEST(EndpointsTest, WithoutWeights) {
  Endpoints endpoints({.engine_id = "e"});
  EXPECT_EQ(endpoints.Handle("GET", "/healthz", "").status, 503);
  EXPECT_EQ(endpoints.Handle("POST", "/apply_gpu_delta", "{}").status, 503);
  EXPECT_EQ(endpoints.Handle("GET", "/openapi.json", "").status, 200);
  EXPECT_EQ(endpoints.Handle("GET", "/nothing", "").status, 404);
  EXPECT_EQ(endpoints.Handle("GET", "/apply_gpu_delta", "").status, 404);
  endpoints.SetFailure(Tainted("the segment is poisoned"));
  const HttpAnswer answer = endpoints.Handle("GET", "/healthz", "");
  EXPECT_EQ(answer.status, 503);
  const Json json = Json::parse(answer.body);
  EXPECT_EQ(json["code"], "tainted");
  EXPECT_EQ(json["message"], "the segment is poisoned");
  EXPECT_EQ(json["success"], false);
}

// Files are pulled whether there are weights or not, but only where the server was told that it
// may.
TEST(EndpointsTest, PullsNeedRoots) {
  Endpoints endpoints({.engine_id = "e"});
  const std::string body =
      R"({"local_checkpoint_dir": "/nowhere/x", "source_dir": "/nowhere/y", "target_version": 1})";
  const auto refused = [&](const std::string& request, int status, const std::string& reason) {
    const HttpAnswer answer = endpoints.Handle("POST", "/pull_weights", request);
    const Json json = Json::parse(answer.body);
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(json["success"], false);
    EXPECT_EQ(json["code"], "invalid_argument");
    EXPECT_NE(json["message"].get<std::string>().find(reason), std::string::npos) << answer.body;
  };
  refused(body, 409, "without --pull-root");
  refused("{}", 409, "are required");
  refused("[]", 400, "not a JSON object");
  endpoints.AllowPulls({"/usr"}, {}, 1);
  refused(body, 409, "leads out of every --pull-root");
}

// Requests that wait for one another fill up their own endpoint, no other.
TEST(EndpointsTest, RepeatsThatWaitLeaveRoom) {
  const test::TemporaryDirectory directory;
  const std::string local = directory.File("local");
  ASSERT_TRUE(MakeDirectories(local + "/.weight_sync").ok());
  ASSERT_TRUE(MakeDirectories(directory.File("source")).ok());
  const int lock = ::open((local + "/.weight_sync/lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);  // Somebody else pulls, and takes his time.
  Endpoints endpoints({.engine_id = "e"});
  endpoints.AllowPulls({directory.path()}, {}, 1);
  const std::string body = R"({"local_checkpoint_dir": ")" + local + R"(", "source_dir": ")" +
                           directory.File("source") + R"(", "target_version": 1})";
  constexpr unsigned kMore = 38;
  std::atomic<unsigned> refused{0};
  std::atomic<unsigned> answered{0};
  std::vector<std::jthread> clients;
  for (unsigned i = 0; i < limits::kHttpLongRequestsMax + kMore; ++i) {
    clients.emplace_back([&] {
      const Json answer = Json::parse(endpoints.Handle("POST", "/pull_weights", body).body);
      const std::string message = answer["message"];
      refused += message.find("are being answered already") != std::string::npos ? 1 : 0;
      ++answered;
    });
  }
  while (answered < kMore) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(refused, kMore);
  EXPECT_EQ(endpoints.Handle("GET", "/openapi.json", "").status, 200);
  EXPECT_EQ(endpoints.Handle("POST", "/get_gpu_delta_status", "{}").status, 503);
  EXPECT_EQ(endpoints.Handle("POST", "/apply_gpu_delta", "{}").status, 503);
  ASSERT_EQ(::close(lock), 0);
  clients.clear();
  EXPECT_EQ(refused, kMore);
  // They have left: there is room again.
  const Json again = Json::parse(endpoints.Handle("POST", "/pull_weights", body).body);
  EXPECT_EQ(again["message"].get<std::string>().find("already"), std::string::npos) << again;
}

TEST(EndpointsTest, TableHasEveryEndpointOnce) {
  std::set<std::string_view> paths;
  for (const Endpoint& endpoint : AllEndpoints()) {
    EXPECT_TRUE(paths.insert(endpoint.path).second) << endpoint.path;
    EXPECT_EQ(FindEndpoint(endpoint.method, endpoint.path), &endpoint);
    EXPECT_TRUE(endpoint.method == "GET" || endpoint.method == "POST");
  }
  for (const char* path : {"/update_weights_from_gpu_delta", "/get_gpu_delta_info",
                           "/get_gpu_delta_status", "/clear_gpu_delta_state", "/prepare_gpu_delta",
                           "/apply_gpu_delta", "/resume_gpu_delta", "/abort_gpu_delta"}) {
    EXPECT_NE(FindEndpoint("POST", path), nullptr) << path;
  }
  EXPECT_EQ(FindEndpoint("PUT", "/apply_gpu_delta"), nullptr);
}

TEST(EndpointsTest, DocumentHasEveryEndpointAndField) {
  const Json document = Json::parse(OpenApiDocument());
  EXPECT_EQ(document["paths"].size(), AllEndpoints().size());
  for (const Endpoint& endpoint : AllEndpoints()) {
    const Json& operations = document["paths"][std::string(endpoint.path)];
    const Json& operation = operations[endpoint.method == "GET" ? "get" : "post"];
    ASSERT_TRUE(operation.contains("responses")) << endpoint.path;
    for (const EndpointField& field : endpoint.fields) {
      const Json& schema = operation["requestBody"]["content"]["application/json"]["schema"];
      EXPECT_TRUE(schema["properties"].contains(std::string(field.name))) << field.name;
    }
  }
}

TEST(MetricsTest, LabelsAreEscaped) {
  ReceiverStatus status;
  status.lineage = "run\"7\\\n";
  status.version = 12;
  const std::string text = MetricsText({.engine_id = "e"}, {status}, {{}});
  EXPECT_NE(text.find("segue_version{engine=\"e\",lineage=\"run\\\"7\\\\\\n\"} 12\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("\n\n"), std::string::npos);
}

TEST(MetricsTest, OfARelay) {
  const RelayStatistics read = {
      .relay_bytes = 5, .origin_bytes = 6, .lies = 7, .kept_bytes = 8, .kept_count = 9};
  const StoreServerStatistics served = {.requests = 10, .refused = 11, .sent_bytes = 12};
  const std::string text = RelayMetricsText({.engine_id = "e"}, read, served);
  for (const std::string sample :
       {"read_bytes_total{engine=\"e\",source=\"relay\"} 5",
        "read_bytes_total{engine=\"e\",source=\"origin\"} 6", "wrong_objects_total{engine=\"e\"} 7",
        "kept_bytes{engine=\"e\"} 8", "kept_objects{engine=\"e\"} 9",
        "requests_total{engine=\"e\"} 10", "refused_total{engine=\"e\"} 11",
        "sent_bytes_total{engine=\"e\"} 12"}) {
    EXPECT_NE(text.find("\nsegue_relay_" + sample + "\n"), std::string::npos) << sample << text;
  }
}

TEST(MetricsTest, CountsOfEachLineage) {
  std::vector<ReceiverStatus> held(2);
  std::vector<ReceiverCounts> counts(2);
  held[0].lineage = "policy";
  held[1].lineage = "draft";
  held[0].version = 4;
  counts[0].newest_version = 9;
  counts[0].update_failures = counts[1].update_failures = 2;
  counts[1].look_failures = 3;
  counts[1].pause_failures = 5;
  for (const double pause : {0.001, 0.2, 0.25, 60.0}) counts[0].pauses.Add(pause);
  const std::string text = MetricsText({.engine_id = "e"}, held, counts);
  for (const std::string sample :
       {"newest_version{engine=\"e\",lineage=\"policy\"} 9",
        "version_lag{engine=\"e\",lineage=\"policy\"} 5",
        "version_lag{engine=\"e\",lineage=\"draft\"} 0",
        "update_failures_total{engine=\"e\",lineage=\"draft\"} 2",
        "look_failures_total{engine=\"e\",lineage=\"draft\"} 3",
        "pause_failures_total{engine=\"e\",lineage=\"draft\"} 5",
        "pause_seconds_bucket{engine=\"e\",lineage=\"policy\",le=\"0.001\"} 1",
        "pause_seconds_bucket{engine=\"e\",lineage=\"policy\",le=\"0.1\"} 1",
        "pause_seconds_bucket{engine=\"e\",lineage=\"policy\",le=\"0.25\"} 3",
        "pause_seconds_bucket{engine=\"e\",lineage=\"policy\",le=\"10\"} 3",
        "pause_seconds_bucket{engine=\"e\",lineage=\"policy\",le=\"+Inf\"} 4",
        "pause_seconds_sum{engine=\"e\",lineage=\"policy\"} 60.451",
        "pause_seconds_count{engine=\"e\",lineage=\"policy\"} 4",
        "pause_seconds_count{engine=\"e\",lineage=\"draft\"} 0"}) {
    EXPECT_NE(text.find("segue_" + sample + "\n"), std::string::npos) << sample << "\n" << text;
  }
}

}  // namespace
}  // namespace segue
