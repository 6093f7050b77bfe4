// SPDX-License-Identifier: Apache-2.0
//
// Safetensors parser. What a header says is checked entry by entry while it is read, then as a
// whole: no name twice, and the tensors tile the data section without hole or overlap. Numbers from
// the file are compared before they are used (cases A1, A2, A4, A7).
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "checkpoint/json.h"

namespace segue {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::uint64_t kLengthSize = 8;

// Reads one header; `entries` are in header order until SortEntries.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  Status Parse(ByteSpan json);

 private:
  struct FieldsSeen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  Status ParseMetadata(ondemand::value value);
  Status ParseTensor(std::string_view name, ondemand::value value);
  Status ParseField(std::string_view key, ondemand::value value, SafetensorsEntry& entry,
                    FieldsSeen& seen);
  Status ParseDtype(ondemand::value value, TensorSpec& spec);
  Status ParseShape(ondemand::value value, TensorSpec& spec);
  Status ParseOffsets(ondemand::value value, SafetensorsEntry& entry);
  Status CheckName(std::string_view name);
  Status CheckSize(const SafetensorsEntry& entry);
  Status CheckNamesDiffer();
  Status CheckTiling();

  Status TensorFault(std::string_view name, std::string_view reason) const {
    return Corruption(TensorMessage(name, reason));
  }
  std::string TensorMessage(std::string_view name, std::string_view reason) const {
    return Quoted(path_) + ": tensor " + Quoted(name) + ": " + std::string(reason);
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  JsonObjectReader json_;
};

Status HeaderParser::Parse(ByteSpan json) {
  SEGUE_RETURN_IF_ERROR(json_.Open(json, path_));
  bool metadata_seen = false;
  for (auto item : json_.root()) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field)) {
      return json_.Fault("header is not valid JSON", error);
    }
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) {
      return json_.Fault("header holds a broken key", error);
    }
    if (key != kMetadataKey) {
      SEGUE_RETURN_IF_ERROR(ParseTensor(key, field.value()));
      continue;
    }
    if (std::exchange(metadata_seen, true)) return json_.Fault("'__metadata__' appears twice");
    SEGUE_RETURN_IF_ERROR(ParseMetadata(field.value()));
  }
  SEGUE_RETURN_IF_ERROR(json_.Finish());
  SEGUE_RETURN_IF_ERROR(CheckNamesDiffer());
  return CheckTiling();
}

Status HeaderParser::ParseMetadata(ondemand::value value) {
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) {
    return json_.Fault("'__metadata__' is not an object", error);
  }
  for (auto item : object) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field)) {
      return json_.Fault("'__metadata__' is not valid JSON", error);
    }
    std::string_view key, text;
    if (const auto error = field.unescaped_key().get(key)) {
      return json_.Fault("'__metadata__' holds a broken key", error);
    }
    if (const auto error = field.value().get_string().get(text)) {
      return json_.Fault("'__metadata__' key " + Quoted(key) + " is not a string", error);
    }
    if (!header_.metadata.emplace(key, text).second) {
      return json_.Fault("'__metadata__' key " + Quoted(key) + " appears twice");
    }
  }
  return {};
}

Status HeaderParser::ParseTensor(std::string_view name, ondemand::value value) {
  SEGUE_RETURN_IF_ERROR(CheckName(name));
  SafetensorsEntry entry;
  entry.spec.name = name;
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) {
    return json_.Fault("tensor " + Quoted(name) + ": is not an object", error);
  }
  FieldsSeen seen;
  for (auto item : object) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field)) {
      return json_.Fault("tensor " + Quoted(name) + ": is not valid JSON", error);
    }
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) {
      return json_.Fault("tensor " + Quoted(name) + ": holds a broken key", error);
    }
    SEGUE_RETURN_IF_ERROR(ParseField(key, field.value(), entry, seen));
  }
  if (!seen.dtype) return TensorFault(name, "field 'dtype' is missing");
  if (!seen.shape) return TensorFault(name, "field 'shape' is missing");
  if (!seen.offsets) return TensorFault(name, "field 'data_offsets' is missing");
  SEGUE_RETURN_IF_ERROR(CheckSize(entry));
  header_.entries.push_back(std::move(entry));
  return {};
}

Status HeaderParser::CheckName(std::string_view name) {
  if (name.empty()) return TensorFault(name, "the name is empty");
  if (name.size() > limits::kTensorNameSizeMax) {
    return ResourceExhausted(TensorMessage(name, "the name has " + std::to_string(name.size()) +
                                                     " bytes, the limit is " +
                                                     std::to_string(limits::kTensorNameSizeMax)));
  }
  if (header_.entries.size() >= limits::kTensorCountMax) {
    return ResourceExhausted(TensorMessage(
        name,
        "is one more than the limit of " + std::to_string(limits::kTensorCountMax) + " tensors"));
  }
  return {};
}

Status HeaderParser::ParseField(std::string_view key, ondemand::value value,
                                SafetensorsEntry& entry, FieldsSeen& seen) {
  const auto once = [&](bool& flag) -> Status {
    if (!std::exchange(flag, true)) return {};
    return TensorFault(entry.spec.name, "field " + Quoted(key) + " appears twice");
  };
  if (key == "dtype") {
    SEGUE_RETURN_IF_ERROR(once(seen.dtype));
    return ParseDtype(value, entry.spec);
  }
  if (key == "shape") {
    SEGUE_RETURN_IF_ERROR(once(seen.shape));
    return ParseShape(value, entry.spec);
  }
  if (key == "data_offsets") {
    SEGUE_RETURN_IF_ERROR(once(seen.offsets));
    return ParseOffsets(value, entry);
  }
  // The reference reader ignores fields that it does not know; they must still be JSON.
  if (const auto error = SkipJsonValue(value)) {
    return json_.Fault("tensor " + Quoted(entry.spec.name) + ": field " + Quoted(key), error);
  }
  return {};
}

Status HeaderParser::ParseDtype(ondemand::value value, TensorSpec& spec) {
  std::string_view name;
  if (const auto error = value.get_string().get(name)) {
    return json_.Fault("tensor " + Quoted(spec.name) + ": dtype is not a string", error);
  }
  const std::optional<Dtype> dtype = DtypeFromName(name);
  if (!dtype) return Unsupported(TensorMessage(spec.name, "unknown dtype " + Quoted(name)));
  spec.dtype = *dtype;
  return {};
}

Status HeaderParser::ParseShape(ondemand::value value, TensorSpec& spec) {
  ondemand::array array;
  if (const auto error = value.get_array().get(array)) {
    return json_.Fault("tensor " + Quoted(spec.name) + ": shape is not an array", error);
  }
  for (auto item : array) {
    std::uint64_t dimension = 0;
    if (const auto error = item.get_uint64().get(dimension)) {
      return json_.Fault("tensor " + Quoted(spec.name) + ": shape holds something other than an " +
                             "integer from 0 to 2^64 - 1",
                         error);
    }
    if (spec.shape.size() >= limits::kTensorRankMax) {
      return ResourceExhausted(TensorMessage(
          spec.name, "has more than " + std::to_string(limits::kTensorRankMax) + " dimensions"));
    }
    spec.shape.push_back(dimension);
  }
  return {};
}

Status HeaderParser::ParseOffsets(ondemand::value value, SafetensorsEntry& entry) {
  ondemand::array array;
  if (const auto error = value.get_array().get(array)) {
    return json_.Fault("tensor " + Quoted(entry.spec.name) + ": data_offsets is not an array",
                       error);
  }
  std::uint64_t offsets[2] = {0, 0};
  std::size_t count = 0;
  for (auto item : array) {
    std::uint64_t offset = 0;
    if (const auto error = item.get_uint64().get(offset)) {
      return json_.Fault("tensor " + Quoted(entry.spec.name) + ": data_offsets holds something " +
                             "other than an integer from 0 to 2^64 - 1",
                         error);
    }
    if (count < 2) offsets[count] = offset;
    ++count;
  }
  if (count != 2) {
    return TensorFault(entry.spec.name,
                       "data_offsets has " + std::to_string(count) + " numbers, expected 2");
  }
  if (offsets[0] > offsets[1]) {
    return TensorFault(entry.spec.name, "data_offsets begin at " + std::to_string(offsets[0]) +
                                            ", after their end at " + std::to_string(offsets[1]));
  }
  entry.offset = offsets[0];
  entry.size = offsets[1] - offsets[0];
  return {};
}

Status HeaderParser::CheckSize(const SafetensorsEntry& entry) {
  const Result<std::uint64_t> size = TensorSize(entry.spec);
  if (!size.ok()) return json_.Fault(size.status().message());
  if (size.value() == entry.size) return {};
  return TensorFault(entry.spec.name, DescribeTensor(entry.spec) + " is " +
                                          std::to_string(size.value()) + " bytes, data_offsets [" +
                                          std::to_string(entry.offset) + ", " +
                                          std::to_string(entry.offset + entry.size) + "] span " +
                                          std::to_string(entry.size));
}

// By hash first: names of one model share long beginnings, so that comparing them is slow. Equal
// hashes are ordered by name, so the cost stays n log n whatever the names are.
Status HeaderParser::CheckNamesDiffer() {
  std::vector<std::pair<std::size_t, std::string_view>> names;
  names.reserve(header_.entries.size());
  for (const SafetensorsEntry& entry : header_.entries) {
    const std::string_view name = entry.spec.name;
    names.emplace_back(std::hash<std::string_view>()(name), name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return TensorFault(twice->second, "appears twice in the header");
  return {};
}

Status HeaderParser::CheckTiling() {
  std::vector<SafetensorsEntry>& entries = header_.entries;
  const auto before = [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) {
    std::stable_sort(entries.begin(), entries.end(), before);
  }
  std::uint64_t end = 0;
  const SafetensorsEntry* last = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != end) {
      const std::string after = last == nullptr ? "the data section begins"
                                                : "tensor " + Quoted(last->spec.name) + " ends";
      return TensorFault(entry.spec.name,
                         std::string(entry.offset > end ? "leaves a gap" : "overlaps") +
                             ": data_offsets begin at " + std::to_string(entry.offset) +
                             ", expected " + std::to_string(end) + " where " + after);
    }
    end += entry.size;  // Below 2^64: it is the second of the entry's data_offsets.
    last = &entry;
  }
  header_.data_size = end;
  return {};
}

Status HeaderSizeFault(std::uint64_t header_size, std::uint64_t file_size,
                       const std::string& path) {
  const std::string found =
      Quoted(path) + ": header length is " + std::to_string(header_size) + " bytes, ";
  if (header_size > limits::kSafetensorsHeaderSizeMax) {
    return ResourceExhausted(found + "the limit is " +
                             std::to_string(limits::kSafetensorsHeaderSizeMax) + "; the file has " +
                             std::to_string(file_size) + " bytes and may be no safetensors file");
  }
  return Corruption(found + "but only " + std::to_string(file_size - kLengthSize) +
                    " bytes follow the length in a file of " + std::to_string(file_size));
}

// What is often found in a checkpoint's place; empty where it is nothing of the kind.
std::string_view KnownStranger(ByteSpan file) {
  constexpr std::string_view kGitLfs = "version https://git-lfs";
  const std::string_view text = AsText(file.first(std::min(file.size(), kGitLfs.size())));
  if (text == kGitLfs) {
    return "is a Git LFS pointer, not the weights; fetch them with 'git lfs pull'";
  }
  if (text.starts_with('<')) return "is HTML or XML, an error page perhaps; download it again";
  return {};
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(ByteSpan json, const std::string& path) {
  if (json.size() > limits::kSafetensorsHeaderSizeMax) {
    return ResourceExhausted(Quoted(path) + ": header has " + std::to_string(json.size()) +
                             " bytes, the limit is " +
                             std::to_string(limits::kSafetensorsHeaderSizeMax));
  }
  SafetensorsHeader header;
  SEGUE_RETURN_IF_ERROR(HeaderParser(path, header).Parse(json));
  return header;
}

Result<SafetensorsFile> ParseSafetensorsFile(ByteSpan file, const std::string& path) {
  if (file.size() < kLengthSize) {
    return Corruption(Quoted(path) + ": has " + std::to_string(file.size()) +
                      " bytes, a safetensors file has at least 8");
  }
  const auto header_size = LoadLittle<std::uint64_t>(file.data());
  if (header_size > limits::kSafetensorsHeaderSizeMax || header_size > file.size() - kLengthSize) {
    // Only now: a true length may begin with any byte.
    const std::string_view stranger = KnownStranger(file);
    if (!stranger.empty()) return Corruption(Quoted(path) + ": " + std::string(stranger));
    return HeaderSizeFault(header_size, file.size(), path);
  }
  SafetensorsFile parsed;
  parsed.json = file.subspan(kLengthSize, header_size);
  parsed.data = file.subspan(kLengthSize + header_size);
  SEGUE_ASSIGN_OR_RETURN(parsed.header, ParseSafetensorsHeader(parsed.json, path));
  const std::uint64_t expected = parsed.header.data_size;
  const std::uint64_t found = parsed.data.size();
  if (found == expected) return parsed;
  return Corruption(Quoted(path) + ": the data section has " + std::to_string(found) +
                    " bytes, the header's tensors need " + std::to_string(expected) + ": " +
                    (found > expected
                         ? std::to_string(found - expected) + " bytes lie past the last tensor"
                         : std::to_string(expected - found) + " bytes are missing"));
}

}  // namespace segue
