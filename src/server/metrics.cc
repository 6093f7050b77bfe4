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
  Text(const EngineIdentity& identity, const ReceiverStatus& status)
      : labels_(fmt::format("engine=\"{}\",lineage=\"{}\"", Escaped(identity.engine_id),
                            Escaped(status.lineage))) {}

  template <typename Value>
  void Add(const char* type, const char* name, const char* help, Value value) {
    text_ += fmt::format("# HELP segue_{0} {1}\n# TYPE segue_{0} {2}\nsegue_{0}{{{3}}} {4}\n", name,
                         help, type, labels_, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string labels_;
  std::string text_;
};

}  // namespace

std::string MetricsText(const EngineIdentity& identity, const ReceiverStatus& status) {
  Text text(identity, status);
  const UpdateReport& last = status.last;
  text.Add("gauge", "ready", "Whether the weights are proven and the gate is open.",
           status.ready ? 1 : 0);
  text.Add("gauge", "state", "State of the receiver, as a number (0 idle to 9 poisoned).",
           static_cast<int>(status.state));
  text.Add("gauge", "version", "Version held.", status.version);
  text.Add("gauge", "target_version", "Version that an update under way leads to.",
           status.target_version);
  text.Add("gauge", "model_bytes", "Size of the weights.", status.model_bytes);
  text.Add("gauge", "engines", "Engines attached to the segment.", status.engines);
  text.Add("counter", "applies_total", "Applies since the segment was made.", status.applied_count);
  text.Add("counter", "scrub_passes_total", "Whole scans that agreed with the version.",
           status.scrub_passes);
  text.Add("counter", "scrub_faults_total", "Scans that did not.", status.scrub_faults);
  text.Add("gauge", "last_payload_bytes", "Payload of the last update.", last.payload_bytes);
  text.Add("gauge", "last_staged_bytes", "Staging of the last update.", last.staged_bytes);
  text.Add("gauge", "last_changed_elements", "Elements that the last update changed.",
           last.changed_elements);
  text.Add("gauge", "last_steps", "Published steps that the last update joined.", last.steps);
  text.Add("gauge", "last_fetch_seconds", "Fetch of the last update.", last.fetch_s);
  text.Add("gauge", "last_stage_seconds", "Hash, outer codec and composition of the last update.",
           last.stage_s);
  text.Add("gauge", "last_preflight_seconds", "Preflight of the last update.", last.preflight_s);
  text.Add("gauge", "last_gate_seconds", "Closing of the gate in the last update.", last.gate_s);
  text.Add("gauge", "last_apply_seconds", "Apply with proof of the last update.", last.apply_s);
  text.Add("gauge", "last_pause_seconds", "Gate closed to gate open in the last update.",
           last.pause_s);
  return text.Take();
}

}  // namespace segue
