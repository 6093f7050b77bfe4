// SPDX-License-Identifier: Apache-2.0
//
// The OpenAPI document, made from the table of endpoints.
#include <nlohmann/json.hpp>

#include "server/endpoint_table.h"

namespace segue {
namespace {

using Json = nlohmann::ordered_json;

Json TypeSchema(FieldType type) {
  switch (type) {
    case FieldType::kString: return {{"type", "string"}};
    case FieldType::kInteger: return {{"type", "integer"}, {"minimum", 0}};
    case FieldType::kBoolean: return {{"type", "boolean"}};
    case FieldType::kVersions:
      return {{"type", "object"}, {"additionalProperties", {{"type", "integer"}, {"minimum", 0}}}};
    case FieldType::kAny: return Json::object();
  }
  return Json::object();
}

Json Object(std::initializer_list<std::pair<const char*, Json>> properties) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (const auto& [name, property] : properties) {
    schema["properties"][name] = property;
    schema["required"].push_back(name);
  }
  return schema;
}

// Several lineages: one object for each, in a member that is there only then.
Json WithLineages(Json schema, const Json& lineage) {
  schema["properties"]["lineages"] = {{"type", "array"}, {"items", lineage}};
  return schema;
}

Json ReceiptSchema() {
  const Json text = {{"type", "string"}};
  const Json number = {{"type", "integer"}};
  const Json timing = Object({{"clock", text},
                              {"pause_started_ns", number},
                              {"reader_fence_completed_ns", number},
                              {"resumed_ns", number},
                              {"blocked_s", {{"type", "number"}}}});
  return Object({{"engine_id", text},
                 {"rank_id", number},
                 {"hostname", text},
                 {"pid", number},
                 {"start_ticks", number},
                 {"tp_rank", number},
                 {"dp_rank", number},
                 {"pp_rank", number},
                 {"state", text},
                 {"message", text},
                 {"session_id", text},
                 {"manifest_sha256", text},
                 {"stream_id", text},
                 {"version", number},
                 {"digest", text},
                 {"base_version", number},
                 {"target_version", number},
                 {"plan_digest", text},
                 {"result", text},
                 {"scheduler_timing", timing},
                 {"flushed_caches", {{"type", "array"}, {"items", text}}}});
}

Json AnswerSchema(AnswerKind kind) {
  Json text = {{"type", "string"}};
  const Json number = {{"type", "integer"}};
  switch (kind) {
    case AnswerKind::kReceipts:
      return Object({{"success", {{"type", "boolean"}}},
                     {"code", text},
                     {"message", text},
                     {"participants",
                      {{"type", "array"}, {"items", {{"$ref", "#/components/schemas/Receipt"}}}}}});
    case AnswerKind::kOutcome:
      return Object({{"success", {{"type", "boolean"}}}, {"code", text}, {"message", text}});
    case AnswerKind::kHealth:
      return WithLineages(Object({{"ready", {{"type", "boolean"}}},
                                  {"lineage", text},
                                  {"version", number},
                                  {"digest", text},
                                  {"message", text}}),
                          Object({{"lineage", text},
                                  {"name", text},
                                  {"version", number},
                                  {"digest", text},
                                  {"ready", {{"type", "boolean"}}}}));
    case AnswerKind::kVersions: {
      const Json held = Object({{"lineage", text},
                                {"version", number},
                                {"newest", number},
                                {"versions", {{"type", "array"}, {"items", number}}}});
      return WithLineages(held, held);
    }
    case AnswerKind::kText: return text;
    case AnswerKind::kDocument: return {{"type", "object"}};
  }
  return Json::object();
}

Json Responses(const Endpoint& endpoint) {
  const char* const type = endpoint.answer == AnswerKind::kText ? "text/plain" : "application/json";
  const Json content = {{type, {{"schema", AnswerSchema(endpoint.answer)}}}};
  Json responses = {{"200", {{"description", "Done, or accepted"}, {"content", content}}}};
  const Json refusal = {{"application/json", {{"schema", AnswerSchema(AnswerKind::kReceipts)}}}};
  const Json own = endpoint.answer == AnswerKind::kOutcome ? content : refusal;
  const auto refused = [&](const char* status, const char* why, const Json& what) {
    responses[status] = {{"description", why}, {"content", what}};
  };
  if (endpoint.method == "POST") {
    refused("400", "Not a request, or one with unknown fields", own);
    refused("413", "The body is larger than 1 MiB", refusal);
  }
  refused("401", "No token, or a wrong one", refusal);
  if (endpoint.method == "POST" || endpoint.answer == AnswerKind::kVersions) {
    refused("409", "Refused, or the store cannot be read", own);
  }
  if (endpoint.answer == AnswerKind::kHealth) {
    const Json either = {
        {"anyOf", {AnswerSchema(AnswerKind::kHealth), AnswerSchema(AnswerKind::kReceipts)}}};
    refused("503", "Not ready, or no weights yet", {{"application/json", {{"schema", either}}}});
  } else if (endpoint.answer != AnswerKind::kDocument && endpoint.answer != AnswerKind::kOutcome) {
    refused("503", "No weights yet", refusal);
  }
  return responses;
}

Json Operation(const Endpoint& endpoint) {
  Json operation = {{"summary", endpoint.text}, {"responses", Responses(endpoint)}};
  if (endpoint.method != "POST") return operation;
  Json properties = Json::object();
  for (const EndpointField& field : endpoint.fields) {
    Json schema = TypeSchema(field.type);
    schema["description"] = field.text;
    properties[std::string(field.name)] = std::move(schema);
  }
  const Json schema = {
      {"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  operation["requestBody"] = {{"content", {{"application/json", {{"schema", schema}}}}}};
  return operation;
}

}  // namespace

std::string OpenApiDocument() {
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "Segue receiver"}, {"version", "1"}}},
                   {"paths", Json::object()},
                   {"components",
                    {{"schemas", {{"Receipt", ReceiptSchema()}}},
                     {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
                   // A token, or none where the server was started without.
                   {"security", {{{"token", Json::array()}}, Json::object()}}};
  for (const Endpoint& endpoint : AllEndpoints()) {
    const std::string method = endpoint.method == "GET" ? "get" : "post";
    document["paths"][std::string(endpoint.path)][method] = Operation(endpoint);
  }
  return document.dump(2);
}

}  // namespace segue
