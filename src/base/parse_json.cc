// SPDX-License-Identifier: Apache-2.0
//
// The check before the tree: the same parser tells what it meets and keeps nothing of it but the
// keys of the objects that are open.
#include "base/parse_json.h"

#include <set>
#include <string>
#include <vector>

namespace segue {
namespace {

using Json = nlohmann::json;

// Told of every value in order; false ends the parsing.
class Checker final : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(std::uint64_t values_max) : values_max_(values_max) {}

  const Status& status() const { return status_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }

  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    return open_.back().insert(name).second || Refuse("has the key '" + Shown(name) + "' twice");
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    status_ = Corruption("is not JSON");
    return false;
  }

 private:
  // Keys may be as long as the text.
  static std::string Shown(const std::string& name) {
    constexpr std::size_t kShownMax = 64;
    return name.size() <= kShownMax ? name : name.substr(0, kShownMax) + "...";
  }

  bool Refuse(const std::string& why) {
    status_ = Unsupported(why);
    return false;
  }

  bool Count() {
    return ++values_ <= values_max_ ||
           Refuse("has more than " + std::to_string(values_max_) + " values");
  }

  bool Open() {
    if (open_.size() == limits::kJsonDepthMax) {
      return Refuse("is nested more than " + std::to_string(limits::kJsonDepthMax) + " deep");
    }
    open_.emplace_back();
    return Count();
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::uint64_t values_max_;
  std::uint64_t values_ = 0;
  std::vector<std::set<std::string>> open_;  // Of each array or object that is open its keys.
  Status status_;
};

}  // namespace

Status CheckJson(std::string_view text, std::uint64_t values_max) {
  Checker checker(values_max);
  (void)Json::sax_parse(text, &checker);
  return checker.status();
}

}  // namespace segue
