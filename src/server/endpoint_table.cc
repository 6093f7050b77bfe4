// SPDX-License-Identifier: Apache-2.0
//
// The table of docs/protocol.md, section 8.
#include "server/endpoint_table.h"

#include <algorithm>

namespace segue {
namespace {

constexpr EndpointField kSession = {"session_id", FieldType::kString, "Name of the update"};
constexpr EndpointField kManifest = {"manifest_path", FieldType::kString,
                                     "Path whose last part is the version's number and .json"};
constexpr EndpointField kTarget = {"target_version", FieldType::kInteger,
                                   "Of all lineages; by default the newest"};
constexpr EndpointField kTargets = {"target_versions", FieldType::kVersions,
                                    "By lineage; one that is not named stays"};
constexpr EndpointField kStream = {"stream_id", FieldType::kString,
                                   "One lineage alone; refused if there is no such one"};
constexpr EndpointField kFlush = {"flush_cache", FieldType::kBoolean,
                                  "Caches are told by the version's change (default true)"};
constexpr EndpointField kAbortAll = {"abort_all_requests", FieldType::kBoolean,
                                     "Refused when true (default false)"};

constexpr EndpointField kUpdateFields[] = {
    kManifest,
    kTarget,
    kTargets,
    kStream,
    {"release_state", FieldType::kBoolean, "Staging is always released (default true)"},
    kFlush,
    kAbortAll,
    {"validate_payload_hash", FieldType::kBoolean, "Hashes are always checked (default true)"}};
constexpr EndpointField kPrepareFields[] = {
    kSession,
    kManifest,
    {"manifest_sha256", FieldType::kString, "Refused if the manifest is another"},
    kStream,
    {"base_version", FieldType::kInteger, "Refused if another version is held"},
    kTarget,
    kTargets,
    {"plan_digest", FieldType::kString, "Refused if the plan is another"},
    {"participants", FieldType::kAny, "Not looked at: one receiver answers for its engine"}};
constexpr EndpointField kApplyFields[] = {kSession, kFlush, kAbortAll};
constexpr EndpointField kResumeFields[] = {
    kSession, {"keep_pause", FieldType::kBoolean, "Refused when true (default false)"}};
constexpr EndpointField kSessionFields[] = {kSession};
constexpr EndpointField kInfoFields[] = {
    {"engine_id", FieldType::kString, "Refused if the engine is another"}};
constexpr EndpointField kRebuildFields[] = {
    kTarget, {"target_versions", FieldType::kVersions, "By lineage, all of them"}};
constexpr EndpointField kPullFields[] = {
    {"local_checkpoint_dir", FieldType::kString, "Checkpoint that is brought forward; required"},
    {"source_dir", FieldType::kString, "Holds weight_vNNNNNN directories; required"},
    {"target_version", FieldType::kInteger, "Number of the last of them; required"}};

constexpr bool kWaits = true;

constexpr Endpoint kEndpoints[] = {
    {"POST", "/update_weights_from_gpu_delta", "Prepare, apply and resume; answers at the end",
     AnswerKind::kReceipts, kUpdateFields, kWaits},
    {"POST", "/prepare_gpu_delta", "Prepare in the background; answers at once",
     AnswerKind::kReceipts, kPrepareFields},
    {"POST", "/apply_gpu_delta", "Apply what is prepared; answers at the end",
     AnswerKind::kReceipts, kApplyFields, kWaits},
    {"POST", "/resume_gpu_delta", "Open the gate after an apply", AnswerKind::kReceipts,
     kResumeFields, kWaits},
    {"POST", "/abort_gpu_delta", "Give up what is being or has been prepared",
     AnswerKind::kReceipts, kSessionFields, kWaits},
    {"POST",
     "/clear_gpu_delta_state",
     "Forget an update that has ended",
     AnswerKind::kReceipts,
     {}},
    {"POST", "/get_gpu_delta_status", "State of the current update", AnswerKind::kReceipts,
     kSessionFields},
    {"POST", "/get_gpu_delta_info", "Who answers, and what is held", AnswerKind::kReceipts,
     kInfoFields},
    {"POST", "/rebuild", "Read the checkpoint again and go to a version; answers at the end",
     AnswerKind::kReceipts, kRebuildFields, kWaits},
    {"POST", kPullPath, "Bring a checkpoint's files forward by disk deltas; answers at the end",
     AnswerKind::kOutcome, kPullFields, kWaits},
    {"GET",
     "/healthz",
     "Whether the weights are proven and the gate is open",
     AnswerKind::kHealth,
     {}},
    {"GET", "/versions", "The version held and those on offer", AnswerKind::kVersions, {}, kWaits},
    {"GET", "/metrics", "Prometheus text", AnswerKind::kText, {}},
    {"GET", "/openapi.json", "This document", AnswerKind::kDocument, {}},
};

}  // namespace

std::span<const Endpoint> AllEndpoints() { return kEndpoints; }

const Endpoint* FindEndpoint(std::string_view method, std::string_view path) {
  const auto found = std::find_if(
      std::begin(kEndpoints), std::end(kEndpoints),
      [&](const Endpoint& endpoint) { return endpoint.method == method && endpoint.path == path; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

}  // namespace segue
