// SPDX-License-Identifier: Apache-2.0
//
// Metrics: base units (bytes, seconds), one HELP and TYPE line each.
#include "server/metrics.h"

#include <fmt/format.h>

namespace segue {
namespace {

// Label values: backslash, quote and line feed are escaped.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

class Text {
 public:
  Text(const EngineIdentity& identity, const std::vector<ReceiverStatus>& lineages)
      : identity_(identity), lineages_(lineages) {}

  // A sample for each lineage.
  template <typename Value>
  void Add(const char* type, const char* name, const char* help, Value value) {
    text_ += fmt::format("# HELP segue_{0} {1}\n# TYPE segue_{0} {2}\n", name, help, type);
    for (const ReceiverStatus& status : lineages_) {
      text_ += fmt::format("segue_{}{{engine=\"{}\",lineage=\"{}\"}} {}\n", name,
                           Escaped(identity_.engine_id), Escaped(status.lineage), value(status));
    }
  }
  std::string Take() { return std::move(text_); }

 private:
  const EngineIdentity& identity_;
  const std::vector<ReceiverStatus>& lineages_;
  std::string text_;
};

}  // namespace

std::string MetricsText(const EngineIdentity& identity,
                        const std::vector<ReceiverStatus>& lineages) {
  using S = ReceiverStatus;
  Text text(identity, lineages);
  text.Add("gauge", "ready", "Whether the weights are proven and the gate is open.",
           [](const S& s) { return s.ready ? 1 : 0; });
  text.Add("gauge", "state", "State of the receiver, as a number (0 idle to 9 poisoned).",
           [](const S& s) { return static_cast<int>(s.state); });
  text.Add("gauge", "version", "Version held.", [](const S& s) { return s.version; });
  text.Add("gauge", "target_version", "Version that an update under way leads to.",
           [](const S& s) { return s.target_version; });
  text.Add("gauge", "model_bytes", "Size of the weights.",
           [](const S& s) { return s.model_bytes; });
  text.Add("gauge", "engines", "Engines attached to the segment.",
           [](const S& s) { return s.engines; });
  text.Add("counter", "applies_total", "Applies since the segment was made.",
           [](const S& s) { return s.applied_count; });
  text.Add("counter", "scrub_passes_total", "Whole scans that agreed with the version.",
           [](const S& s) { return s.scrub_passes; });
  text.Add("counter", "scrub_faults_total", "Scans that did not.",
           [](const S& s) { return s.scrub_faults; });
  text.Add("gauge", "last_payload_bytes", "Payload of the last update.",
           [](const S& s) { return s.last.payload_bytes; });
  text.Add("gauge", "last_staged_bytes", "Staging of the last update.",
           [](const S& s) { return s.last.staged_bytes; });
  text.Add("gauge", "last_changed_elements", "Elements that the last update changed.",
           [](const S& s) { return s.last.changed_elements; });
  text.Add("gauge", "last_steps", "Published steps that the last update joined.",
           [](const S& s) { return s.last.steps; });
  text.Add("gauge", "last_fetch_seconds", "Fetch of the last update.",
           [](const S& s) { return s.last.fetch_s; });
  text.Add("gauge", "last_stage_seconds", "Hash, outer codec and composition of the last update.",
           [](const S& s) { return s.last.stage_s; });
  text.Add("gauge", "last_preflight_seconds", "Preflight of the last update.",
           [](const S& s) { return s.last.preflight_s; });
  text.Add("gauge", "last_gate_seconds", "Closing of the gate in the last update.",
           [](const S& s) { return s.last.gate_s; });
  text.Add("gauge", "last_apply_seconds", "Apply with proof of the last update.",
           [](const S& s) { return s.last.apply_s; });
  text.Add("gauge", "last_pause_seconds", "Gate closed to gate open in the last update.",
           [](const S& s) { return s.last.pause_s; });
  return text.Take();
}

}  // namespace segue
