// SPDX-License-Identifier: Apache-2.0
//
// The endpoints as data: requests are checked against this table and the OpenAPI document is made
// from it, so that neither can say what the other does not.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "segue/status.h"

namespace segue {

// Versions: an object of lineages and whole numbers.
enum class FieldType { kString, kInteger, kBoolean, kVersions, kAny };

struct EndpointField {
  std::string_view name;
  FieldType type;
  std::string_view text;
};

// What answers consist of, for the document.
enum class AnswerKind { kReceipts, kOutcome, kHealth, kVersions, kText, kDocument };

struct Endpoint {
  std::string_view method;
  std::string_view path;
  std::string_view text;
  AnswerKind answer;
  std::span<const EndpointField> fields;
  // Answered when something else has ended: an update, a pull, what a store says.
  bool waits = false;
};

// Answered whether there are weights or not: it is about files.
inline constexpr char kPullPath[] = "/pull_weights";

std::span<const Endpoint> AllEndpoints();

// Null where there is none.
const Endpoint* FindEndpoint(std::string_view method, std::string_view path);

// The OpenAPI 3.1 document.
std::string OpenApiDocument();

}  // namespace segue
