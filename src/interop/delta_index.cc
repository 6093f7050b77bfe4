// SPDX-License-Identifier: Apache-2.0
//
// Delta index: `metadata` is read here, `weight_map` by the parser of every index. That one refuses
// a map without tensors, which for a delta means that nothing has changed.
#include "interop/delta_index.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"

namespace segue {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t kVersionDigits = 6;
constexpr std::string_view kEncodingKey = "delta_encoding";

// The texts of `metadata` that a delta has.
struct Metadata {
  std::optional<std::string> version;
  std::optional<std::string> base_version;
  std::optional<std::string> delta_encoding;
  std::optional<std::string> compression_format;
  std::optional<std::string> checksum_format;

  std::optional<std::string>* Find(std::string_view key) {
    if (key == "version") return &version;
    if (key == "base_version") return &base_version;
    if (key == kEncodingKey) return &delta_encoding;
    if (key == "compression_format") return &compression_format;
    if (key == "checksum_format") return &checksum_format;
    return nullptr;
  }
};

class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  Result<std::optional<DeltaIndex>> Parse(ByteSpan json) {
    SEGUE_RETURN_IF_ERROR(ReadAll(json));
    const bool is_delta = metadata_.delta_encoding || no_text_ == kEncodingKey;
    if (!is_delta) return std::optional<DeltaIndex>();
    if (!no_text_.empty()) return json_.Fault("'metadata' key '" + no_text_ + "' is not a string");
    DeltaIndex index;
    SEGUE_RETURN_IF_ERROR(Take(index));
    if (!map_seen_) return json_.Fault("'weight_map' is missing");
    if (map_empty_) return std::optional<DeltaIndex>(std::move(index));
    SEGUE_ASSIGN_OR_RETURN(index.map, ParseIndex(json, path_));
    return std::optional<DeltaIndex>(std::move(index));
  }

 private:
  Status ReadAll(ByteSpan json) {
    SEGUE_RETURN_IF_ERROR(json_.Open(json, path_));
    bool metadata_seen = false;
    for (auto item : json_.root()) {
      ondemand::field field;
      if (const auto error = std::move(item).get(field)) {
        return json_.Fault("is not valid JSON", error);
      }
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return json_.Fault("holds a broken key", error);
      }
      if (key == "metadata") {
        if (std::exchange(metadata_seen, true)) return json_.Fault("'metadata' appears twice");
        SEGUE_RETURN_IF_ERROR(ReadMetadata(field.value()));
      } else if (key == "weight_map") {
        if (std::exchange(map_seen_, true)) return json_.Fault("'weight_map' appears twice");
        SEGUE_RETURN_IF_ERROR(ReadMap(field.value()));
      } else if (const auto error = SkipJsonValue(field.value())) {
        return json_.Fault("key " + Quoted(key), error);
      }
    }
    return json_.Finish();
  }

  Status ReadMetadata(ondemand::value value) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) {
      return json_.Fault("'metadata' is not an object", error);
    }
    for (auto item : object) {
      ondemand::field field;
      if (const auto error = std::move(item).get(field)) {
        return json_.Fault("'metadata' is not valid JSON", error);
      }
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return json_.Fault("'metadata' holds a broken key", error);
      }
      std::optional<std::string>* const known = metadata_.Find(key);
      if (known == nullptr) {
        if (const auto error = SkipJsonValue(field.value())) {
          return json_.Fault("'metadata' key " + Quoted(key), error);
        }
        continue;
      }
      SEGUE_RETURN_IF_ERROR(ReadText(std::string(key), field.value(), *known));
    }
    return {};
  }

  // What is no text may be a full checkpoint's own key of that name.
  Status ReadText(const std::string& key, ondemand::value value,
                  std::optional<std::string>& target) {
    ondemand::json_type type;
    if (const auto error = value.type().get(type))
      return json_.Fault("'metadata' is broken", error);
    if (type != ondemand::json_type::string) {
      if (no_text_.empty() || key == kEncodingKey) no_text_ = key;
      if (const auto error = SkipJsonValue(value)) {
        return json_.Fault("'metadata' key '" + key + "'", error);
      }
      return {};
    }
    std::string_view text;
    if (const auto error = value.get_string().get(text)) {
      return json_.Fault("'metadata' key '" + key + "' is not a string", error);
    }
    if (target) return json_.Fault("'metadata' key '" + key + "' appears twice");
    target = std::string(text);
    return {};
  }

  // Only whether there is anything in it; the rest is for the parser of indexes.
  Status ReadMap(ondemand::value value) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) {
      return json_.Fault("'weight_map' is not an object", error);
    }
    for (auto item : object) {
      map_empty_ = false;
      ondemand::field field;
      if (const auto error = std::move(item).get(field)) {
        return json_.Fault("'weight_map' is not valid JSON", error);
      }
      if (const auto error = SkipJsonValue(field.value())) {
        return json_.Fault("'weight_map' is not valid JSON", error);
      }
    }
    return {};
  }

  Status Take(DeltaIndex& index) const {
    SEGUE_RETURN_IF_ERROR(TakeVersion("version", metadata_.version, index.version));
    SEGUE_RETURN_IF_ERROR(TakeVersion("base_version", metadata_.base_version, index.base_version));
    const std::string compression = metadata_.compression_format.value_or("");
    if (compression != "zstd") return Unknown("compression_format", compression, "zstd");
    const auto encoding = DeltaEncodingFromName(*metadata_.delta_encoding);
    if (!encoding) return Unknown("delta_encoding", *metadata_.delta_encoding, "xor, overwrite");
    const std::string checksum = metadata_.checksum_format.value_or("");
    const auto kind = ChecksumKindFromName(checksum);
    if (!kind) return Unknown("checksum_format", checksum, "xxh3-128, blake3, adler32");
    index.encoding = *encoding;
    index.checksum = *kind;
    return {};
  }

  Status TakeVersion(const char* key, const std::optional<std::string>& text,
                     std::uint64_t& version) const {
    const auto parsed = text ? ParseDiskVersion(*text) : std::nullopt;
    if (!parsed) {
      return json_.Fault(std::string("'metadata' key '") + key + "' is " +
                         (text ? Quoted(*text) : "missing") + ", expected six digits");
    }
    version = *parsed;
    return {};
  }

  Status Unknown(const char* key, const std::string& text, const char* known) const {
    return Unsupported(Quoted(path_) + ": " + key + " is " +
                       (text.empty() ? "missing" : Quoted(text)) + "; known are " + known);
  }

  const std::string& path_;
  JsonObjectReader json_;
  Metadata metadata_;
  std::string no_text_;  // A key of a delta's whose value is no string.
  bool map_seen_ = false;
  bool map_empty_ = true;
};

}  // namespace

Result<std::optional<DeltaIndex>> ParseDeltaIndex(ByteSpan json, const std::string& path) {
  if (json.size() > limits::kIndexSizeMax) {
    return ResourceExhausted(Quoted(path) + ": has " + std::to_string(json.size()) +
                             " bytes, the limit is " + std::to_string(limits::kIndexSizeMax));
  }
  return Parser(path).Parse(json);
}

std::string MakeDeltaIndex(const DeltaIndex& index) {
  std::string text = "{\n  \"metadata\": {";
  const auto add = [&text](const char* key, std::string_view value) {
    text += text.back() == '{' ? "\n    \"" : ",\n    \"";
    text += key;
    text += "\": ";
    AppendJsonString(text, value);
  };
  add("version", DiskVersionText(index.version));
  add("base_version", DiskVersionText(index.base_version));
  add("delta_encoding", DeltaEncodingName(index.encoding));
  add("compression_format", "zstd");
  add("checksum_format", ChecksumKindName(index.checksum));
  text += "\n  },\n  \"weight_map\": {";
  for (const IndexEntry& entry : index.map.entries) {
    text += text.back() == '{' ? "\n    " : ",\n    ";
    AppendJsonString(text, entry.tensor);
    text += ": ";
    AppendJsonString(text, index.map.shards[entry.shard]);
  }
  text += index.map.entries.empty() ? "}\n}\n" : "\n  }\n}\n";
  return text;
}

std::string DiskVersionText(std::uint64_t version) {
  SEGUE_CHECK(version <= limits::kDiskDeltaVersionMax);
  const std::string digits = std::to_string(version);
  return std::string(kVersionDigits - digits.size(), '0') + digits;
}

std::optional<std::uint64_t> ParseDiskVersion(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.size() != kVersionDigits || !std::all_of(text.begin(), text.end(), is_digit)) {
    return std::nullopt;
  }
  std::uint64_t version = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

std::string DiskVersionName(std::uint64_t version) { return "weight_v" + DiskVersionText(version); }

}  // namespace segue
