// SPDX-License-Identifier: Apache-2.0
//
// Endpoint request: parsed, and put into the words of a receiver group.
#include "server/endpoint_request.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace segue {
namespace {

using Json = nlohmann::json;

bool HasType(const Json& value, FieldType type) {
  switch (type) {
    case FieldType::kString: return value.is_string();
    case FieldType::kInteger: return value.is_number_unsigned();
    case FieldType::kBoolean: return value.is_boolean();
    case FieldType::kVersions:
      return value.is_object() && std::ranges::all_of(value, [](const Json& version) {
               return version.is_number_unsigned();
             });
    case FieldType::kAny: return true;
  }
  return false;
}

const char* TypeName(FieldType type) {
  switch (type) {
    case FieldType::kString: return "a string";
    case FieldType::kInteger: return "a whole number";
    case FieldType::kBoolean: return "true or false";
    case FieldType::kVersions: return "an object of lineages and whole numbers";
    case FieldType::kAny: return "anything";
  }
  return "";
}

// The version in ".../0000000007.json".
Result<std::uint64_t> VersionOfPath(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  if (error == std::errc() && end == name.data() + name.size()) return version;
  return InvalidArgument("manifest_path '" + path +
                         "' does not end in a version's number and '.json'");
}

std::string FieldsOf(const Endpoint& endpoint) {
  std::string text = std::string(endpoint.path) + " has ";
  if (endpoint.fields.empty()) return text + "none";
  for (const EndpointField& field : endpoint.fields) {
    text += std::string(&field == endpoint.fields.data() ? "" : ", ") + std::string(field.name);
  }
  return text;
}

}  // namespace

Result<EndpointRequest> EndpointRequest::Parse(const Endpoint& endpoint, const std::string& body) {
  EndpointRequest request;
  auto fields = ParseJson<Json>(body.empty() ? "{}" : body, limits::kJsonSmallValuesMax);
  if (!fields.ok()) return InvalidArgument("the body " + fields.status().message());
  request.fields_ = std::move(fields).value();
  if (!request.fields_.is_object()) return InvalidArgument("the body is not a JSON object");
  for (const EndpointField& field : endpoint.fields) {
    const auto found = request.fields_.find(std::string(field.name));
    if (found == request.fields_.end() || found->is_null()) continue;
    if (HasType(*found, field.type)) continue;
    return InvalidArgument("field '" + std::string(field.name) + "' must be " +
                           TypeName(field.type));
  }
  for (const auto& [name, value] : request.fields_.items()) {
    const bool known = std::any_of(endpoint.fields.begin(), endpoint.fields.end(),
                                   [&](const EndpointField& field) { return field.name == name; });
    if (!known) return InvalidArgument("there is no field '" + name + "'; " + FieldsOf(endpoint));
  }
  return request;
}

ApplyChoices EndpointRequest::Choices() const {
  return {Get<bool>("flush_cache").value_or(true), Flag("abort_all_requests")};
}

Result<std::optional<std::uint64_t>> EndpointRequest::Target() const {
  std::optional<std::uint64_t> target = Get<std::uint64_t>("target_version");
  const std::string path = String("manifest_path");
  if (path.empty()) return target;
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t version, VersionOfPath(path));
  if (target && *target != version) {
    return InvalidArgument("target_version is " + std::to_string(*target) +
                           ", manifest_path says " + std::to_string(version));
  }
  return std::optional(version);
}

std::string EndpointRequest::FieldOfOne() const {
  if (Get<std::uint64_t>("base_version")) return "base_version";
  for (const char* const name : {"manifest_path", "manifest_sha256", "plan_digest"}) {
    if (!String(name).empty()) return name;
  }
  return "";
}

Result<PrepareRequest> EndpointRequest::OfOne() const {
  PrepareRequest part;
  SEGUE_ASSIGN_OR_RETURN(part.target_version, Target());
  part.base_version = Get<std::uint64_t>("base_version");
  part.plan_digest = String("plan_digest");
  part.manifest_sha256 = String("manifest_sha256");
  return part;
}

Result<GroupRequest> EndpointRequest::Update(const std::vector<std::string>& held) const {
  GroupRequest request;
  const auto targets = Get<Versions>("target_versions");
  const std::string stream = String("stream_id");
  const std::string of_one = FieldOfOne();
  if (targets) {
    const bool alone = of_one.empty() && stream.empty() && !Get<std::uint64_t>("target_version");
    if (!alone || targets->empty()) {
      return InvalidArgument(
          "target_versions names at least one lineage, and goes with no other "
          "field that says what to go to or from");
    }
    for (const auto& [lineage, version] : *targets) {
      request.lineages[lineage].target_version = version;
    }
    return request;
  }
  if (stream.empty() && held.size() > 1) {
    if (!of_one.empty()) {
      return InvalidArgument(of_one + " is of one lineage: stream_id must say which");
    }
    request.target_version = Get<std::uint64_t>("target_version");
    return request;
  }
  const std::string& lineage = stream.empty() ? held.front() : stream;
  if (held.size() == 1 && lineage != held.front()) {
    return VersionMismatch("lineage '" + held.front() + "' is held, not '" + lineage + "'");
  }
  SEGUE_ASSIGN_OR_RETURN(request.lineages[lineage], OfOne());
  return request;
}

std::string EndpointRequest::TargetText() const {
  std::string text;
  for (const auto& [lineage, version] : Get<Versions>("target_versions").value_or(Versions())) {
    text += (text.empty() ? "" : ",") + lineage + "=" + std::to_string(version);
  }
  if (!text.empty()) return text;
  const Result<std::optional<std::uint64_t>> target = Target();
  text = target.ok() && target.value() ? std::to_string(*target.value()) : std::string("newest");
  const std::string stream = String("stream_id");
  return stream.empty() ? text : stream + "=" + text;
}

}  // namespace segue
