// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing of the small JSON objects. The text is parsed whole by simdjson's DOM,
// which checks all of it (UTF-8, syntax, what follows the object), and not on demand as the large
// headers are: the format and its version are judged before any other key, wherever they stand, and
// keys may not repeat inside what is ignored either. What is accepted goes into plain structs.
#include "delta/manifest.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/limits.h"
#include "checkpoint/tensor.h"

namespace segue {
namespace {

namespace dom = simdjson::dom;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kManifestFormat = "segue-manifest";
constexpr std::string_view kAnchorFormat = "segue-anchor";
constexpr std::string_view kLineageFormat = "segue-lineage";
constexpr std::string_view kOwnerFormat = "segue-owner";
constexpr std::uint64_t kFormatVersion = 1;
constexpr std::string_view kObjectNameBytes =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";
// Sizes and counts fit a signed 64-bit number too, which is what JSON readers elsewhere have.
constexpr std::uint64_t kCountMax = (1ull << 63) - 1;

// What stands where something else was expected.
std::string Describe(dom::element element) {
  std::string_view text;
  if (element.get(text) == simdjson::SUCCESS) return "the string " + Quoted(text);
  if (element.is_object()) return "an object";
  if (element.is_array()) return "an array";
  return simdjson::minify(element);
}

// Reads the keys of one object in any order. As with ByteReader the first fault stays: what is read
// after it has no meaning, and a parser may read a whole object and test once.
class FieldReader {
 public:
  // `where` names the object in messages.
  FieldReader(std::string where, dom::object object) : where_(std::move(where)), object_(object) {}

  const std::string& where() const { return where_; }
  const Status& status() const { return status_; }

  std::string Text(std::string_view key, const std::string& expected = "a string") {
    std::string_view text;
    return Get(key, expected, text) ? std::string(text) : std::string();
  }

  std::uint64_t Integer(std::string_view key, std::uint64_t max = kCountMax) {
    const std::string expected = "an integer from 0 to " + std::to_string(max);
    std::uint64_t number = 0;
    if (!Get(key, expected, number)) return 0;
    if (number > max) Refuse(key, expected, std::to_string(number));
    return number;
  }

  // For keys that may be absent.
  bool Has(std::string_view key) const { return object_.at_key(key).error() == simdjson::SUCCESS; }

  // T: Sha256 or Digest, as lower-case digits.
  template <typename T>
  T Hex(std::string_view key) {
    const std::string expected = std::to_string(2 * sizeof(T)) + " lower-case hexadecimal digits";
    const std::string text = Text(key, expected);
    if (!status_.ok()) return {};
    const std::optional<T> value = T::FromHex(text);
    if (!value) Refuse(key, expected, Quoted(text) + " of " + std::to_string(text.size()));
    return value.value_or(T{});
  }

  dom::object Object(std::string_view key) {
    dom::object object;
    Get(key, "an object", object);
    return object;
  }

  // Every element; empty after a fault.
  std::vector<dom::element> Array(std::string_view key, std::uint64_t count_min,
                                  std::uint64_t count_max) {
    const std::string expected = "an array of " + std::to_string(count_min) + " to " +
                                 std::to_string(count_max) + " entries";
    dom::array array;
    if (!Get(key, expected, array)) return {};
    std::vector<dom::element> elements(array.begin(), array.end());
    if (elements.size() < count_min) Refuse(key, expected, "none");
    if (elements.size() > count_max) {
      status_ = ResourceExhausted(Message(key, expected, std::to_string(elements.size())));
    }
    return status_.ok() ? elements : std::vector<dom::element>();
  }

  // Corruption, unless there is a fault already.
  void Refuse(std::string_view key, const std::string& expected, const std::string& found) {
    if (status_.ok()) status_ = Corruption(Message(key, expected, found));
  }

  std::string Message(std::string_view key, const std::string& expected,
                      const std::string& found) const {
    return where_ + ": key " + Quoted(key) + ": expected " + expected + ", found " + found;
  }

 private:
  template <typename T>
  bool Get(std::string_view key, const std::string& expected, T& value) {
    dom::element element;
    if (object_.at_key(key).get(element) != simdjson::SUCCESS) {
      Refuse(key, expected, "no such key");
    } else if (element.get(value) != simdjson::SUCCESS) {
      Refuse(key, expected, Describe(element));
    }
    return status_.ok();
  }

  std::string where_;
  dom::object object_;
  Status status_;
};

// A key, as unescaped, that one object at or below `element` has twice. The parser bounds the
// depth.
std::optional<std::string_view> RepeatedKey(dom::element element) {
  dom::array array;
  if (element.get(array) == simdjson::SUCCESS) {
    for (const dom::element item : array) {
      if (const auto key = RepeatedKey(item)) return key;
    }
    return std::nullopt;
  }
  dom::object object;
  if (element.get(object) != simdjson::SUCCESS) return std::nullopt;
  std::vector<std::string_view> keys;
  for (const dom::key_value_pair& field : object) {
    if (const auto key = RepeatedKey(field.value)) return key;
    keys.push_back(field.key);
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? std::nullopt : std::optional(*twice);
}

Status CheckFormat(FieldReader& fields, std::string_view format) {
  const std::string expected = Quoted(format);
  const std::string found = fields.Text("format", expected);
  if (found != format) fields.Refuse("format", expected, Quoted(found));
  const std::uint64_t version = fields.Integer("format_version", ~0ull);
  SEGUE_RETURN_IF_ERROR(fields.status());
  if (version == kFormatVersion) return {};
  return Unsupported(fields.Message("format_version",
                                    std::to_string(kFormatVersion) + " (the one known here)",
                                    std::to_string(version)));
}

// The text's one object, held by `parser`; its syntax, keys and format are checked.
Result<FieldReader> OpenRecord(ByteSpan json, const std::string& name, std::string_view format,
                               dom::parser& parser) {
  const std::string where = Quoted(name);
  if (json.size() > limits::kManifestSizeMax) {
    return ResourceExhausted(where + ": expected at most " +
                             std::to_string(limits::kManifestSizeMax) + " bytes, found " +
                             std::to_string(json.size()));
  }
  const std::string_view text = AsText(json);
  const std::size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string_view::npos) {
    return Corruption(where + ": expected a JSON object, found nothing");
  }
  // Some releases of simdjson would skip a byte order mark.
  if (text[begin] != '{') {
    return Corruption(where + ": expected a JSON object, found " + Quoted(text.substr(begin, 1)) +
                      " in front");
  }
  dom::element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
    const std::string reason = simdjson::error_message(error);
    if (error == simdjson::MEMALLOC) return ResourceExhausted(where + ": " + reason);
    return Corruption(where +
                      ": expected one JSON object with numbers of 64 bits, found: " + reason);
  }
  if (const auto key = RepeatedKey(root)) {
    return Corruption(where + ": key " + Quoted(*key) +
                      ": expected once in an object, found twice");
  }
  FieldReader fields(where, root.get_object().value_unsafe());
  SEGUE_RETURN_IF_ERROR(CheckFormat(fields, format));
  return fields;
}

std::string ReadLineage(FieldReader& fields) {
  std::string lineage = fields.Text("lineage");
  const Status status = CheckLineageName(lineage);
  if (!status.ok()) fields.Refuse("lineage", "the name of a lineage", status.message());
  return lineage;
}

// Whether the name stays below its lineage, whatever the store makes of names (case B5).
bool IsConfined(std::string_view object, const std::string& lineage) {
  if (!object.starts_with(lineage + "/")) return false;
  if (object.find_first_not_of(kObjectNameBytes) != std::string_view::npos) return false;
  if (object.ends_with('/') || object.find("//") != std::string_view::npos) return false;
  return object.find("/.") == std::string_view::npos;
}

PayloadEntry ReadEntry(FieldReader& fields, const std::string& lineage, std::uint64_t owner) {
  PayloadEntry entry;
  const std::uint64_t found = fields.Integer("owner");
  if (found != owner) fields.Refuse("owner", std::to_string(owner), std::to_string(found));
  entry.owner = static_cast<std::uint32_t>(owner);
  entry.object = fields.Text("object");
  if (!IsConfined(entry.object, lineage)) {
    fields.Refuse("object", "parts of [A-Za-z0-9._-] below '" + lineage + "/'",
                  Quoted(entry.object));
  }
  entry.size = fields.Integer("size");
  entry.sha256 = fields.Hex<Sha256>("sha256");
  entry.rows = fields.Integer("rows");
  return entry;
}

// Whether a delta may lead from a version to itself.
enum class SameVersion { kRefused, kAllowed };

DeltaIdentity ReadIdentity(FieldReader& fields, SameVersion same = SameVersion::kRefused) {
  DeltaIdentity identity;
  identity.lineage = ReadLineage(fields);
  identity.base_version = fields.Integer("base_version", limits::kVersionMax);
  identity.target_version = fields.Integer("target_version", limits::kVersionMax);
  const bool is_same = identity.base_version == identity.target_version;
  if (identity.base_version > identity.target_version ||
      (is_same && same == SameVersion::kRefused)) {
    fields.Refuse("base_version",
                  std::string(same == SameVersion::kAllowed ? "at most" : "less than") +
                      " target_version " + std::to_string(identity.target_version),
                  std::to_string(identity.base_version));
  }
  identity.plan = fields.Hex<Sha256>("plan");
  identity.base_layout = fields.Hex<Sha256>("base_layout");
  identity.target_layout = fields.Hex<Sha256>("target_layout");
  identity.base_digest = fields.Hex<Digest>("base_digest");
  identity.target_digest = fields.Hex<Digest>("target_digest");
  identity.profile = fields.Text("profile");
  identity.changed_chunks = fields.Integer("changed_chunks");
  identity.changed_elements = fields.Integer("changed_elements");
  return identity;
}

OrderedJson StartRecord(std::string_view format, const std::string& lineage) {
  return {{"format", format}, {"format_version", kFormatVersion}, {"lineage", lineage}};
}

// The keys of a delta that manifest and owner record begin with.
OrderedJson StartDelta(std::string_view format, const DeltaIdentity& identity) {
  OrderedJson json = StartRecord(format, identity.lineage);
  json["base_version"] = identity.base_version;
  json["target_version"] = identity.target_version;
  json["plan"] = identity.plan.ToHex();
  json["base_layout"] = identity.base_layout.ToHex();
  json["target_layout"] = identity.target_layout.ToHex();
  return json;
}

OrderedJson EntryJson(const PayloadEntry& entry) {
  return {{"owner", entry.owner},
          {"object", entry.object},
          {"size", entry.size},
          {"sha256", entry.sha256.ToHex()},
          {"rows", entry.rows}};
}

std::string ToText(const OrderedJson& json) { return json.dump(2) + "\n"; }

}  // namespace

namespace {

// The keys of a manifest.
OrderedJson ManifestJson(std::string_view format, const Manifest& manifest) {
  const DeltaIdentity& identity = manifest.identity;
  OrderedJson json = StartDelta(format, identity);
  json["base_digest"] = identity.base_digest.ToHex();
  json["target_digest"] = identity.target_digest.ToHex();
  json["profile"] = identity.profile;
  json["model_bytes"] = manifest.model_bytes;
  json["changed_chunks"] = identity.changed_chunks;
  json["changed_elements"] = identity.changed_elements;
  OrderedJson entries = OrderedJson::array();
  for (const PayloadEntry& entry : manifest.payloads) entries.push_back(EntryJson(entry));
  json["payloads"] = std::move(entries);
  return json;
}

// What a manifest and an anchor record have in common.
Result<Manifest> ReadManifestFields(FieldReader& fields, SameVersion same) {
  Manifest manifest;
  manifest.identity = ReadIdentity(fields, same);
  manifest.model_bytes = fields.Integer("model_bytes");
  const bool is_empty = manifest.identity.base_version == manifest.identity.target_version;
  const auto elements = fields.Array("payloads", is_empty ? 0 : 1, limits::kOwnerCountMax);
  if (is_empty && !elements.empty()) {
    fields.Refuse("payloads", "none, as base and target are one version",
                  std::to_string(elements.size()));
  }
  for (const dom::element element : elements) {
    const std::size_t place = manifest.payloads.size();
    const std::string where = fields.where() + ": payload " + std::to_string(place);
    dom::object object;
    if (element.get(object) != simdjson::SUCCESS) {
      return Corruption(where + ": expected an object, found " + Describe(element));
    }
    FieldReader entry(where, object);
    manifest.payloads.push_back(ReadEntry(entry, manifest.identity.lineage, place));
    SEGUE_RETURN_IF_ERROR(entry.status());
  }
  SEGUE_RETURN_IF_ERROR(fields.status());
  return manifest;
}

}  // namespace

std::string Manifest::ToJson() const { return ToText(ManifestJson(kManifestFormat, *this)); }

Result<Manifest> Manifest::Parse(ByteSpan json, const std::string& name) {
  dom::parser parser;
  SEGUE_ASSIGN_OR_RETURN(FieldReader fields, OpenRecord(json, name, kManifestFormat, parser));
  return ReadManifestFields(fields, SameVersion::kRefused);
}

std::string AnchorRecord::ToJson() const {
  OrderedJson json = ManifestJson(kAnchorFormat, manifest);
  json["anchor"] = anchor;
  return ToText(json);
}

Result<AnchorRecord> AnchorRecord::Parse(ByteSpan json, const std::string& name) {
  dom::parser parser;
  SEGUE_ASSIGN_OR_RETURN(FieldReader fields, OpenRecord(json, name, kAnchorFormat, parser));
  AnchorRecord record;
  record.anchor = fields.Text("anchor");
  const Status named = CheckLineageName(record.anchor);
  if (!named.ok()) fields.Refuse("anchor", "the name of an anchor", named.message());
  SEGUE_ASSIGN_OR_RETURN(record.manifest, ReadManifestFields(fields, SameVersion::kAllowed));
  const DeltaIdentity& identity = record.manifest.identity;
  const bool changes = identity.base_digest != identity.target_digest ||
                       identity.base_layout != identity.target_layout ||
                       identity.changed_chunks != 0 || identity.changed_elements != 0;
  if (!record.leads_on() && changes) {
    return Corruption(fields.where() + ": base and target are one version, and yet they differ");
  }
  return record;
}

std::string LineageRecord::ToJson() const {
  OrderedJson json = StartRecord(kLineageFormat, lineage);
  json["origin_version"] = origin_version;
  json["origin_digest"] = origin_digest.ToHex();
  json["plan"] = plan.ToHex();
  json["layout"] = layout.ToHex();
  return ToText(json);
}

Result<LineageRecord> LineageRecord::Parse(ByteSpan json, const std::string& name) {
  dom::parser parser;
  SEGUE_ASSIGN_OR_RETURN(FieldReader fields, OpenRecord(json, name, kLineageFormat, parser));
  LineageRecord record;
  record.lineage = ReadLineage(fields);
  record.origin_version = fields.Integer("origin_version", limits::kVersionMax);
  record.origin_digest = fields.Hex<Digest>("origin_digest");
  record.plan = fields.Hex<Sha256>("plan");
  record.layout = fields.Hex<Sha256>("layout");
  SEGUE_RETURN_IF_ERROR(fields.status());
  return record;
}

namespace {

OrderedJson OwnerJson(const OwnerRecord& record) {
  const DeltaIdentity& identity = record.identity;
  OrderedJson json = StartDelta(kOwnerFormat, identity);
  json["owner"] = record.payload.owner;
  json["owner_count"] = record.owner_count;
  json["profile"] = identity.profile;
  json["base_digest"] = identity.base_digest.ToHex();
  json["target_digest"] = identity.target_digest.ToHex();
  json["changed_chunks"] = identity.changed_chunks;
  json["changed_elements"] = identity.changed_elements;
  json["payload"] = EntryJson(record.payload);
  if (!record.round.empty()) json["round"] = record.round;
  if (!record.tensors.empty()) json["tensors"] = record.tensors;
  return json;
}

// Of the record's own text: owner 0 adds the digests of others to its own without seeing what they
// are digests of, and what it adds up is published for good.
Sha256 CheckOf(const OwnerRecord& record) { return HashSha256(AsBytes(ToText(OwnerJson(record)))); }

}  // namespace

std::string OwnerRecord::ToJson() const {
  OrderedJson json = OwnerJson(*this);
  json["check"] = CheckOf(*this).ToHex();
  return ToText(json);
}

Result<OwnerRecord> OwnerRecord::Parse(ByteSpan json, const std::string& name) {
  dom::parser parser;
  SEGUE_ASSIGN_OR_RETURN(FieldReader fields, OpenRecord(json, name, kOwnerFormat, parser));
  OwnerRecord record;
  record.identity = ReadIdentity(fields);
  const std::uint64_t owner = fields.Integer("owner");
  const std::uint64_t count = fields.Integer("owner_count", limits::kOwnerCountMax);
  if (owner >= count) {
    fields.Refuse("owner", "less than owner_count " + std::to_string(count), std::to_string(owner));
  }
  record.owner_count = static_cast<std::uint32_t>(count);
  if (fields.Has("round")) record.round = fields.Text("round");
  if (fields.Has("tensors")) record.tensors = fields.Text("tensors");
  const dom::object object = fields.Object("payload");
  const auto check = fields.Hex<Sha256>("check");
  SEGUE_RETURN_IF_ERROR(fields.status());
  FieldReader entry(fields.where() + ": payload", object);
  record.payload = ReadEntry(entry, record.identity.lineage, owner);
  SEGUE_RETURN_IF_ERROR(entry.status());
  if (check == CheckOf(record)) return record;
  return Corruption(fields.where() + ": it is not what its owner wrote, by its check");
}

}  // namespace segue
