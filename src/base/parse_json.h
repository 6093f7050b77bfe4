// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside as a tree. The parser that builds it makes of every bracket some sixty bytes
// and has no limit of its own, and of a key that is there twice it keeps either one. So nothing is
// built before the text has been gone through once: what must hold is that no text costs more
// memory than its caller's number of values allows, and that it means one thing. Checkpoints and
// manifests have a stricter reader (checkpoint/json.h).
//
// An array or object of the library allocates when it ends, unless it is empty; where memory has
// run out, that ends the program. JsonTree frees its values from the leaves up, which needs none.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "segue/status.h"

namespace segue {

namespace limits {

// Arrays and objects in each other; as in checkpoint/json.h.
inline constexpr std::size_t kJsonDepthMax = 128;
// Values in one text, arrays and objects among them: a request's body or a small file, an engine's
// answer. A listing's follow from the names that it may have.
inline constexpr std::uint64_t kJsonSmallValuesMax = 10'000;
inline constexpr std::uint64_t kJsonAnswerValuesMax = 100'000;

}  // namespace limits

// Corruption: not JSON. Unsupported: JSON that is nested deeper or has more values than is allowed,
// or an object with a key twice. Messages go on from the text's name: "is not JSON".
Status CheckJson(std::string_view text, std::uint64_t values_max);

// Leaves a value that is no array or object, or an empty one. As deep as the value is.
template <typename Json>
void EmptyJson(Json& json) noexcept {
  if (!json.is_structured()) return;
  for (Json& child : json) EmptyJson(child);
  json.clear();
}

// A value whose end needs no memory. `Json`: nlohmann::json; nlohmann::ordered_json is right too,
// but copies values of its own when an object grows, so that only its end is safe.
template <typename Json>
class JsonTree : public Json {
 public:
  JsonTree() = default;
  ~JsonTree() { EmptyJson<Json>(*this); }
  JsonTree(JsonTree&& other) noexcept : Json(std::move(static_cast<Json&>(other))) {}
  JsonTree& operator=(JsonTree&& other) noexcept {
    EmptyJson<Json>(*this);
    Json::operator=(std::move(static_cast<Json&>(other)));
    return *this;
  }
  Json Take() && { return std::move(static_cast<Json&>(*this)); }
};

// Makes the tree of what the parser tells; what is made so far belongs to the tree at any time.
template <typename Json>
class JsonTreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  using Base = nlohmann::json_sax<Json>;

  explicit JsonTreeBuilder(Json& root) : root_(root) {}

  bool null() override { return Put(Json()); }
  bool boolean(bool value) override { return Put(Json(value)); }
  bool number_integer(typename Base::number_integer_t value) override { return Put(Json(value)); }
  bool number_unsigned(typename Base::number_unsigned_t value) override { return Put(Json(value)); }
  bool number_float(typename Base::number_float_t value, const std::string&) override {
    return Put(Json(value));
  }
  bool string(std::string& value) override { return Put(Json(std::move(value))); }
  bool binary(typename Base::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::value_t::object); }
  bool start_array(std::size_t) override { return Open(Json::value_t::array); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const typename Json::exception&) override {
    return false;
  }

 private:
  Json& Place(Json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) return parent.emplace_back(std::move(value));
    return parent[key_] = std::move(value);
  }
  bool Put(Json&& value) {
    Place(std::move(value));
    return true;
  }
  bool Open(typename Json::value_t kind) {
    open_.push_back(&Place(Json(kind)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;
  std::string key_;
};

// `Json`: nlohmann::json or nlohmann::ordered_json.
template <typename Json>
Result<JsonTree<Json>> ParseJson(std::string_view text, std::uint64_t values_max) {
  SEGUE_RETURN_IF_ERROR(CheckJson(text, values_max));
  JsonTree<Json> tree;
  JsonTreeBuilder<Json> builder(tree);
  if (!Json::sax_parse(text, &builder)) return Corruption("is not JSON");
  return Result<JsonTree<Json>>(std::move(tree));
}

}  // namespace segue
