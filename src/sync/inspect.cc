// SPDX-License-Identifier: Apache-2.0
//
// Inspect: what a path is, and what it holds, as JSON. What it is follows from the format's own
// magic or "format" field.
#include "segue/inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/limits.h"
#include "base/parse_json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/manifest.h"
#include "delta/payload_table.h"
#include "store/archive.h"
#include "store/dir_writer.h"
#include "store/store.h"
#include "sync/checkpoint_state.h"
#include "sync/journal.h"
#include "sync/lineage.h"

namespace segue {
namespace {

using Json = nlohmann::ordered_json;

Json DescribePlan(const Plan& plan) {
  std::map<std::string, std::uint64_t> by_dtype;
  for (const PlanTensor& tensor : plan.tensors()) {
    by_dtype[std::string(DtypeName(tensor.spec.dtype))] += tensor.size;
  }
  return {{"plan", plan.digest().ToHex()},    {"tensors", plan.tensors().size()},
          {"model_bytes", plan.model_size()}, {"chunk_size", plan.chunk_size()},
          {"chunks", plan.chunk_count()},     {"bytes_by_dtype", by_dtype}};
}

// An apply in place that is begun and not over: the weights may be half changed.
Json DescribeJournal(const std::string& directory) {
  Json json = {{"resolve_with", "segue resolve --checkpoint " + directory}};
  const auto record = Journal(directory).Read();
  if (!record.ok()) {
    json["unreadable"] = record.status().message();
  } else if (record.value()) {
    json["lineage"] = record.value()->target.lineage;
    json["base_version"] = record.value()->base.version;
    json["target_version"] = record.value()->target.version;
  }
  return json;
}

Result<Json> InspectCheckpoint(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::OpenUnresolved(path));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(checkpoint));
  Json json = {{"kind", "checkpoint"}};
  json.update(DescribePlan(plan));
  json["layout"] = Layout::FromCheckpoint(checkpoint).digest().ToHex();
  for (const Shard& shard : checkpoint.shards()) {
    json["shards"].push_back({{"name", shard.name},
                              {"size", shard.file.bytes().size()},
                              {"tensors", shard.tensors.size()}});
  }
  SEGUE_ASSIGN_OR_RETURN(const auto state, ReadState(checkpoint.directory()));
  if (state) {
    json["state"] = {{"lineage", state->lineage},
                     {"version", state->version},
                     {"digest", state->digest.ToHex()}};
  }
  if (FileExists(JoinPath(checkpoint.directory(), kJournalRecordName))) {
    json["interrupted_apply"] = DescribeJournal(checkpoint.directory());
  }
  json["warnings"] = checkpoint.warnings();
  return json;
}

// The largest record is a manifest: some ten values for each owner.
Result<Json> ParseRecord(std::string_view text) {
  SEGUE_ASSIGN_OR_RETURN(auto tree, ParseJson<Json>(text, 16 * limits::kOwnerCountMax + 1'000));
  return std::move(tree).Take();
}

Json DescribeAnchor(const AnchorRecord& record) {
  const DeltaIdentity& identity = record.manifest.identity;
  return {{"anchor", record.anchor},
          {"version", identity.base_version},
          {"target_version", identity.target_version},
          {"digest", identity.base_digest.ToHex()},
          {"changed_elements", identity.changed_elements},
          {"payload_bytes", PayloadBytes(record.manifest)}};
}

Result<Json> DescribeLineage(Store& store, const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const Lineage lineage, Lineage::Open(store, name));
  Json entry = {{"lineage", name},
                {"origin_version", lineage.record().origin_version},
                {"origin_digest", lineage.record().origin_digest.ToHex()},
                {"newest", lineage.newest()},
                {"versions", Json::array()}};
  for (const auto& [version, manifest] : lineage.manifests()) {
    entry["versions"].push_back({{"version", version},
                                 {"base_version", manifest.identity.base_version},
                                 {"target_digest", manifest.identity.target_digest.ToHex()},
                                 {"profile", manifest.identity.profile},
                                 {"changed_elements", manifest.identity.changed_elements},
                                 {"payload_bytes", PayloadBytes(manifest)}});
  }
  entry["anchors"] = Json::array();
  for (const auto& [anchor, record] : lineage.CurrentAnchors()) {
    entry["anchors"].push_back(DescribeAnchor(record));
  }
  return entry;
}

Result<Json> DescribeStore(Store& store, const std::vector<std::string>& lineages) {
  Json json = {{"kind", "store"}, {"lineages", Json::array()}};
  for (const std::string& name : lineages) {
    SEGUE_ASSIGN_OR_RETURN(Json entry, DescribeLineage(store, name));
    json["lineages"].push_back(std::move(entry));
  }
  return json;
}

Result<Json> InspectStore(const std::string& path, const std::vector<std::string>& lineages) {
  SEGUE_ASSIGN_OR_RETURN(const auto store, OpenStore("dir:" + path, /*create=*/false));
  return DescribeStore(*store, lineages);
}

// A tar archive says so in its first header.
bool IsArchive(ByteSpan bytes) {
  constexpr std::size_t kMagicOffset = 257;
  return bytes.size() >= kTarBlockSize &&
         AsText(bytes.subspan(kMagicOffset, 8)).starts_with("ustar");
}

Result<Json> InspectArchive(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const auto store, OpenStore("file:" + path, /*create=*/false));
  SEGUE_ASSIGN_OR_RETURN(const auto lineages, store->ListFolders(""));
  SEGUE_ASSIGN_OR_RETURN(Json json, DescribeStore(*store, lineages));
  json["kind"] = "delta-checkpoint";
  return json;
}

Result<Json> InspectLineage(const std::string& folder) {
  // With a part after it, so that a '/' at the end makes no difference.
  const std::filesystem::path path =
      std::filesystem::absolute(JoinPath(folder, "lineage.json")).lexically_normal().parent_path();
  SEGUE_ASSIGN_OR_RETURN(const auto store,
                         OpenStore("dir:" + path.parent_path().string(), /*create=*/false));
  Json json = {{"kind", "lineage"}};
  SEGUE_ASSIGN_OR_RETURN(const Json described, DescribeLineage(*store, path.filename().string()));
  json.update(described);
  return json;
}

// A store elsewhere, or the folder of a lineage in it.
Result<Json> InspectUrl(const std::string& url) {
  SEGUE_ASSIGN_OR_RETURN(const auto store, OpenStore(url, /*create=*/false));
  SEGUE_ASSIGN_OR_RETURN(const auto names, store->List(""));
  if (std::find(names.begin(), names.end(), "lineage.json") == names.end()) {
    SEGUE_ASSIGN_OR_RETURN(const auto lineages, Lineage::ListLineages(*store));
    return DescribeStore(*store, lineages);
  }
  const std::string folder = url.substr(0, url.find_last_not_of('/') + 1);
  const std::size_t slash = folder.rfind('/');
  SEGUE_ASSIGN_OR_RETURN(const auto parent, OpenStore(folder.substr(0, slash), /*create=*/false));
  Json json = {{"kind", "lineage"}};
  SEGUE_ASSIGN_OR_RETURN(const Json described, DescribeLineage(*parent, folder.substr(slash + 1)));
  json.update(described);
  return json;
}

bool IsUrl(const std::string& path) {
  return path.starts_with("http://") || path.starts_with("https://") || path.starts_with("s3://");
}

// The plan of the lineage whose folder `payload` lies in; empty where it lies in none.
Result<std::string> FindPlan(const std::string& payload) {
  // LINEAGE/payloads/VERSION/NAME or LINEAGE/anchors/ANCHOR/RANGE/NAME.
  constexpr int kDepth = 3;
  std::filesystem::path folder = std::filesystem::absolute(payload).lexically_normal();
  for (int i = 0; i < kDepth; ++i) folder = folder.parent_path();
  std::string record_path = JoinPath(folder.string(), "lineage.json");
  if (!FileExists(record_path)) {
    folder = folder.parent_path();
    record_path = JoinPath(folder.string(), "lineage.json");
  }
  if (!FileExists(record_path)) return std::string();
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, ReadFile(record_path, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(const LineageRecord record, LineageRecord::Parse(json, record_path));
  return JoinPath(folder.string(), "plans/" + record.plan.ToHex());
}

Result<Json> InspectPayload(ByteSpan bytes, const std::string& path, std::string plan_path) {
  if (plan_path.empty()) {
    SEGUE_ASSIGN_OR_RETURN(plan_path, FindPlan(path));
  }
  if (plan_path.empty()) {
    return InvalidArgument("payload '" + path +
                           "' does not lie in a store; name its plan with --plan");
  }
  SEGUE_ASSIGN_OR_RETURN(const ByteVector object, ReadFile(plan_path, limits::kPlanSizeMax));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::Parse(object));
  SEGUE_ASSIGN_OR_RETURN(const PayloadTable table, ReadPayloadTable(bytes, plan));
  std::map<std::string, std::uint64_t> encodings;
  std::uint64_t changed = 0;
  std::uint64_t staged = 0;
  for (const ChunkRow& row : table.rows) {
    ++encodings[std::string(EncodingName(row.encoding))];
    changed += row.change_count;
  }
  for (const Frame& frame : table.frames) staged += frame.inner_size;
  return Json{{"kind", "payload"},
              {"size", bytes.size()},
              {"rows", table.rows.size()},
              {"groups", table.groups.size()},
              {"frames", table.frames.size()},
              {"changed_elements", changed},
              {"staged_bytes", staged},
              {"rows_by_encoding", encodings}};
}

// Of a JSON object; empty: it is none of ours.
std::string FormatOf(ByteSpan bytes) {
  if (bytes.size() > limits::kManifestSizeMax) return "";
  const Result<Json> json = ParseRecord(AsText(bytes));
  if (!json.ok() || !json->is_object()) return "";
  const auto format = json->find("format");
  return format != json->end() && format->is_string() ? format->get<std::string>() : "";
}

Result<Json> DescribeRecord(const char* kind, const std::string& text) {
  SEGUE_ASSIGN_OR_RETURN(const Json record, ParseRecord(text));
  Json described = {{"kind", kind}};
  described.update(record);
  return described;
}

Result<Json> InspectJson(ByteSpan bytes, const std::string& path) {
  const std::string format = FormatOf(bytes);
  if (format == "segue-manifest") {
    SEGUE_ASSIGN_OR_RETURN(const Manifest manifest, Manifest::Parse(bytes, path));
    SEGUE_ASSIGN_OR_RETURN(Json described, DescribeRecord("manifest", manifest.ToJson()));
    described.erase("format");
    return described;
  }
  if (format == "segue-anchor") {
    SEGUE_ASSIGN_OR_RETURN(const AnchorRecord record, AnchorRecord::Parse(bytes, path));
    return DescribeRecord("anchor", record.ToJson());
  }
  if (format == "segue-lineage") {
    SEGUE_ASSIGN_OR_RETURN(const LineageRecord record, LineageRecord::Parse(bytes, path));
    return DescribeRecord("lineage", record.ToJson());
  }
  if (format == "segue-owner") {
    SEGUE_ASSIGN_OR_RETURN(const OwnerRecord record, OwnerRecord::Parse(bytes, path));
    return DescribeRecord("owner", record.ToJson());
  }
  return Unsupported("'" + path +
                     "' is nothing that Segue knows: no safetensors file, plan, layout, "
                     "payload, manifest or store");
}

Result<Json> InspectFile(const std::string& path, const std::string& plan_path) {
  if (path.ends_with(".safetensors")) return InspectCheckpoint(path);
  SEGUE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string_view magic =
      AsText(file.bytes().first(std::min<std::size_t>(8, file.bytes().size())));
  if (magic == kPayloadMagic) return InspectPayload(file.bytes(), path, plan_path);
  if (magic == "SEGUEPLN") {
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::Parse(file.bytes()));
    Json json = {{"kind", "plan"}};
    json.update(DescribePlan(plan));
    return json;
  }
  if (magic == "SEGUELAY") {
    SEGUE_ASSIGN_OR_RETURN(const Layout layout, Layout::Parse(file.bytes()));
    Json json = {{"kind", "layout"}, {"layout", layout.digest().ToHex()}};
    for (const LayoutShard& shard : layout.shards()) json["shards"].push_back(shard.name);
    json["has_index"] = !layout.index_json().empty();
    return json;
  }
  if (IsArchive(file.bytes())) return InspectArchive(path);
  return InspectJson(file.bytes(), path);
}

// Nothing has been published there yet: nothing at all, or a publisher's temporaries alone.
bool IsEmptyStore(const std::string& place) {
  const auto names = ListDirectory(place);
  const std::vector<std::string> temporaries = {std::string(kTemporaryFolder)};
  return names.ok() && (names.value().empty() || names.value() == temporaries);
}

}  // namespace

Result<std::string> Inspect(const std::string& path, const std::string& plan) {
  const std::string place = path.starts_with("dir:") ? path.substr(4) : path;
  if (!IsUrl(path) && !FileExists(place)) return NotFound("there is no '" + path + "'");
  std::error_code error;
  Result<Json> json = Internal("not inspected");
  if (IsUrl(path)) {
    json = InspectUrl(path);
  } else if (!std::filesystem::is_directory(place, error)) {
    json = InspectFile(place, plan);
  } else if (const auto lineages = FindLineages(place); !lineages.empty()) {
    json = InspectStore(place, lineages);
  } else if (FileExists(JoinPath(place, "lineage.json"))) {
    json = InspectLineage(place);
  } else if (IsEmptyStore(place)) {
    json = InspectStore(place, {});
  } else {
    json = InspectCheckpoint(place);
  }
  if (!json.ok()) return json.status();
  return json->dump();
}

}  // namespace segue
