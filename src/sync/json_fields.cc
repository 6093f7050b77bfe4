// SPDX-License-Identifier: Apache-2.0
//
// JsonFields by nlohmann-json, parsing without exceptions.
#include "sync/json_fields.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/parse_json.h"

namespace segue {

struct JsonFields::Object {
  nlohmann::ordered_json json;
};

JsonFields::JsonFields(const std::string& format) : object_(std::make_unique<Object>()) {
  object_->json["format"] = format;
  object_->json["format_version"] = 1;
}
JsonFields::~JsonFields() = default;
JsonFields::JsonFields(JsonFields&&) noexcept = default;
JsonFields& JsonFields::operator=(JsonFields&&) noexcept = default;

Result<JsonFields> JsonFields::Read(const std::string& path, const std::string& format) {
  SEGUE_ASSIGN_OR_RETURN(const ByteVector bytes,
                         ReadFile(path, limits::kManifestSizeMax, Links::kRefuse));
  JsonFields fields(format);
  fields.path_ = path;
  auto json = ParseJson<nlohmann::ordered_json>(AsText(bytes), limits::kJsonSmallValuesMax);
  if (!json.ok()) return Corruption("'" + path + "' " + json.status().message());
  fields.object_->json = std::move(*json).Take();
  if (!fields.object_->json.is_object()) return Corruption("'" + path + "' is not a JSON object");
  std::string found;
  std::uint64_t version = 0;
  SEGUE_RETURN_IF_ERROR(fields.Get("format", found));
  SEGUE_RETURN_IF_ERROR(fields.Get("format_version", version));
  if (found != format) {
    return Corruption("'" + path + "' has format '" + found + "', expected '" + format + "'");
  }
  if (version != 1) {
    return Unsupported("'" + path + "' has format version " + std::to_string(version) +
                       ", 1 is known");
  }
  return fields;
}

void JsonFields::Set(const std::string& name, const std::string& value) {
  object_->json[name] = value;
}
void JsonFields::Set(const std::string& name, std::uint64_t value) { object_->json[name] = value; }

std::string JsonFields::ToText() const { return object_->json.dump(2) + "\n"; }

Status JsonFields::Get(const std::string& name, std::string& value) const {
  const auto found = object_->json.find(name);
  if (found == object_->json.end() || !found->is_string()) {
    return Corruption("'" + path_ + "' has no text '" + name + "'");
  }
  value = found->get<std::string>();
  return {};
}

Status JsonFields::Get(const std::string& name, std::uint64_t& value) const {
  const auto found = object_->json.find(name);
  if (found == object_->json.end() || !found->is_number_unsigned()) {
    return Corruption("'" + path_ + "' has no number '" + name + "'");
  }
  value = found->get<std::uint64_t>();
  return {};
}

Status JsonFields::Get(const std::string& name, Digest& value) const {
  std::string text;
  SEGUE_RETURN_IF_ERROR(Get(name, text));
  const auto digest = Digest::FromHex(text);
  if (!digest) return Corruption("'" + path_ + "': '" + name + "' is not a digest");
  value = *digest;
  return {};
}

Status JsonFields::Get(const std::string& name, Sha256& value) const {
  std::string text;
  SEGUE_RETURN_IF_ERROR(Get(name, text));
  const auto hash = Sha256::FromHex(text);
  if (!hash) return Corruption("'" + path_ + "': '" + name + "' is not a SHA-256");
  value = *hash;
  return {};
}

}  // namespace segue
