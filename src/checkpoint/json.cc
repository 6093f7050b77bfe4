// SPDX-License-Identifier: Apache-2.0
//
// Strict JSON reading on simdjson; written for 3.0 (Debian 12) and newer.
#include "checkpoint/json.h"

#include "base/limits.h"
#include "checkpoint/tensor.h"

namespace segue {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr int kJsonDepthMax = 128;

simdjson::error_code SkipObject(ondemand::value value, int depth) {
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) return error;
  for (auto item : object) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field)) return error;
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) return error;
    if (const auto error = SkipJsonValue(field.value(), depth + 1)) return error;
  }
  return simdjson::SUCCESS;
}

simdjson::error_code SkipArray(ondemand::value value, int depth) {
  ondemand::array array;
  if (const auto error = value.get_array().get(array)) return error;
  for (auto item : array) {
    ondemand::value element;
    // NOLINTNEXTLINE(performance-move-const-arg): get() takes an rvalue alone.
    if (const auto error = std::move(item).get(element)) return error;
    if (const auto error = SkipJsonValue(element, depth + 1)) return error;
  }
  return simdjson::SUCCESS;
}

simdjson::error_code SkipNull(ondemand::value value) {
  // The result's type differs between simdjson releases (bool or simdjson_result<bool>).
  bool is_null = false;
  const simdjson::simdjson_result<bool> result = value.is_null();
  if (const auto error = simdjson::simdjson_result<bool>(result).get(is_null)) return error;
  return is_null ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
}

}  // namespace

simdjson::error_code SkipJsonValue(ondemand::value value, int depth) {
  if (depth > kJsonDepthMax) return simdjson::DEPTH_ERROR;
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) return error;
  switch (type) {
    case ondemand::json_type::object: return SkipObject(value, depth);
    case ondemand::json_type::array: return SkipArray(value, depth);
    case ondemand::json_type::string: return value.get_string().error();
    case ondemand::json_type::number: return value.get_number().error();
    case ondemand::json_type::boolean: return value.get_bool().error();
    case ondemand::json_type::null: return SkipNull(value);
    default: return simdjson::TAPE_ERROR;
  }
}

Status JsonObjectReader::Open(ByteSpan text, std::string_view path) {
  path_ = path;
  if (text.empty()) return Fault("is empty, expected a JSON object");
  if (AsText(text).front() != '{') return Fault("does not begin with '{'");
  copy_ = simdjson::padded_string(AsText(text));
  if (copy_.data() == nullptr) {
    return ResourceExhausted(Quoted(path_) + ": no memory for " + std::to_string(text.size()) +
                             " bytes of JSON");
  }
  if (const auto error = parser_.iterate(copy_).get(document_)) {
    if (error != simdjson::MEMALLOC) return Fault("is not valid JSON", error);
    return ResourceExhausted(Quoted(path_) + ": no memory to parse " + std::to_string(text.size()) +
                             " bytes of JSON");
  }
  if (const auto error = document_.get_object().get(root_)) {
    return Fault("is not a JSON object", error);
  }
  return {};
}

Status JsonObjectReader::Finish() {
  // The parser knows no location behind the last token; asking so works in every 3.x.
  if (document_.current_location().error() == simdjson::OUT_OF_BOUNDS) return {};
  return Fault("has more text after the JSON object");
}

Status JsonObjectReader::Fault(std::string_view reason, simdjson::error_code error) const {
  std::string message = Quoted(path_) + ": ";
  return Corruption(message.append(reason) + " (" + simdjson::error_message(error) + ")");
}

Status JsonObjectReader::Fault(std::string_view reason) const {
  return Corruption((Quoted(path_) + ": ").append(reason));
}

}  // namespace segue
