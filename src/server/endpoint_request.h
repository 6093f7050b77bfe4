// SPDX-License-Identifier: Apache-2.0
//
// Endpoint request: the body of a POST, checked against the endpoint's fields, and what it asks of
// which lineage (docs/protocol.md, sections 8 and 15).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/parse_json.h"
#include "segue/receiver_group.h"
#include "segue/status.h"
#include "server/endpoint_table.h"

namespace segue {

// A body whose fields are the endpoint's and have their types; null counts as absent. One that is
// not known is refused: a misspelt `target_version` would mean the newest.
class EndpointRequest {
 public:
  static Result<EndpointRequest> Parse(const Endpoint& endpoint, const std::string& body);

  template <typename T>
  std::optional<T> Get(const char* name) const {
    const auto found = fields_.find(name);
    if (found == fields_.end() || found->is_null()) return std::nullopt;
    return found->get<T>();
  }
  std::string String(const char* name) const { return Get<std::string>(name).value_or(""); }
  bool Flag(const char* name) const { return Get<bool>(name).value_or(false); }
  ApplyChoices Choices() const;

  // Of `held`, the names of the lineages here, in order; without a session. What is said of one
  // lineage alone needs its name (stream_id) where there are several.
  Result<GroupRequest> Update(const std::vector<std::string>& held) const;
  // "newest", "7", "draft=3,policy=8": of an update in one call.
  std::string TargetText() const;

 private:
  using Versions = std::map<std::string, std::uint64_t>;

  Result<std::optional<std::uint64_t>> Target() const;
  Result<PrepareRequest> OfOne() const;
  // A field that is there and is about one lineage; empty: none.
  std::string FieldOfOne() const;

  JsonTree<nlohmann::json> fields_;
};

}  // namespace segue
