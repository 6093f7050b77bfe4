// SPDX-License-Identifier: Apache-2.0
//
// Reads what a run of tools/gpu_check wrote.
#include "segue/measurements.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/parse_json.h"

namespace segue {
namespace {

constexpr std::uint64_t kFileSizeMax = 4 << 20;

using Json = nlohmann::json;

// Text at `key`, or nothing where there is none; false where something else is there.
bool ReadText(const Json& json, const char* key, std::string& text) {
  if (!json.contains(key)) return true;
  if (!json[key].is_string()) return false;
  text = json[key].get<std::string>();
  return true;
}

bool ReadFigure(const Json& json, Measurement& figure) {
  const auto number = [&json](const char* key) {
    return json.contains(key) && json[key].is_number();
  };
  if (!json.is_object() || !number("seconds") || !json.contains("name")) return false;
  if (!ReadText(json, "name", figure.name)) return false;
  if (!ReadText(json, "workload", figure.workload)) return false;
  figure.seconds = json["seconds"].get<double>();
  if (number("model_bytes")) figure.model_bytes = json["model_bytes"].get<double>();
  return true;
}

}  // namespace

Result<MeasuredRun> ReadMeasurements(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const ByteVector bytes, ReadFile(path, kFileSizeMax));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto parsed = ParseJson<Json>(text, limits::kJsonSmallValuesMax);
  if (!parsed.ok()) {
    return Corruption("'" + path + "' " + std::string(parsed.status().message()));
  }
  const Json& json = parsed.value();
  const auto refused = [&path](const char* why) { return Corruption("'" + path + "' " + why); };
  MeasuredRun run;
  const bool sound = json.is_object() && json.contains("figures") && json["figures"].is_array() &&
                     json.contains("fake") && json["fake"].is_boolean() &&
                     ReadText(json, "device", run.device);
  if (!sound) return refused("is no file of tools/gpu_check");
  if (json["fake"].get<bool>()) return refused("is of a fake driver, which measures nothing");
  for (const Json& item : json["figures"]) {
    if (!ReadFigure(item, run.figures.emplace_back())) {
      return refused("has a figure without name or seconds");
    }
  }
  return run;
}

}  // namespace segue
