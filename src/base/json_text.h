// SPDX-License-Identifier: Apache-2.0
//
// JSON as text, part by part, for answers that must be given also where memory runs out. The
// library's tree is of no use there: when an array or object of it ends, also on the way of an
// exception, it allocates, and where that fails the program ends. What must hold: nothing here but
// strings is ever owned, so that bad_alloc passes as from anywhere else.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace segue {

// A string, number or truth value. Of text that is no UTF-8 what is wrong is replaced.
template <typename Value>
std::string JsonOf(const Value& value) {
  using Json = nlohmann::json;
  if constexpr (std::same_as<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::integral<Value>) {
    return std::to_string(value);
  } else if constexpr (std::floating_point<Value>) {
    return Json(value).dump();
  } else {
    // A tree of one text is no array or object.
    return Json(std::string(std::string_view(value)))
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

// "[...]" of what is JSON already.
inline std::string JsonListOfTexts(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text.append(text.size() == 1 ? "" : ",").append(item);
  return text += "]";
}

// "[...]" of strings or numbers.
template <typename Value>
std::string JsonList(const std::vector<Value>& values) {
  std::vector<std::string> items;
  items.reserve(values.size());
  for (const Value& value : values) items.push_back(JsonOf(value));
  return JsonListOfTexts(items);
}

// "{...}", with the fields in the order in which they are added, each once.
class JsonObjectText {
 public:
  template <typename Value>
  JsonObjectText& Add(std::string_view name, const Value& value) {
    return AddText(name, JsonOf(value));
  }
  // `json`: a list or object, as text.
  JsonObjectText& AddText(std::string_view name, std::string_view json) {
    text_.append(text_.size() == 1 ? "\"" : ",\"").append(name).append("\":").append(json);
    return *this;
  }
  std::string Text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace segue
