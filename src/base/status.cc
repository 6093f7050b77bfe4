// SPDX-License-Identifier: Apache-2.0
//
// Status: names of the codes, messages, and the end of the program on an unchecked Result.
#include "segue/status.h"

#include <cstdio>
#include <cstdlib>

namespace segue {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kNotFound: return "not_found";
    case StatusCode::kVersionMismatch: return "version_mismatch";
    case StatusCode::kCorruption: return "corruption";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kResourceExhausted: return "resource_exhausted";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kTainted: return "tainted";
    case StatusCode::kInternal: return "internal";
  }
  return "unknown";
}

const std::string& Status::message() const {
  static const std::string empty;
  return ok() ? empty : rep_->message;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code())) + ": " + message();
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + message());
}

Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
Status VersionMismatch(std::string m) { return {StatusCode::kVersionMismatch, std::move(m)}; }
Status Corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
Status Tainted(std::string m) { return {StatusCode::kTainted, std::move(m)}; }
Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

void ResultDie(const Status& status) {
  std::fprintf(stderr, "segue: value() of a failed Result: %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace segue
