// SPDX-License-Identifier: Apache-2.0
//
// Metrics: base units (bytes, seconds), one HELP and TYPE line each.
#include "server/metrics.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>

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

std::string Heading(const char* type, const char* name, const char* help) {
  return fmt::format("# HELP segue_{0} {1}\n# TYPE segue_{0} {2}\n", name, help, type);
}

class Text {
 public:
  Text(const EngineIdentity& identity, const std::vector<ReceiverStatus>& lineages,
       const std::vector<ReceiverCounts>& counts)
      : lineages_(lineages), counts_(counts) {
    for (const ReceiverStatus& status : lineages) {
      labels_.push_back(fmt::format("engine=\"{}\",lineage=\"{}\"", Escaped(identity.engine_id),
                                    Escaped(status.lineage)));
    }
  }

  // A sample for each lineage, of its status.
  template <typename Value>
  void Add(const char* type, const char* name, const char* help, Value value) {
    Begin(type, name, help);
    for (std::size_t i = 0; i < labels_.size(); ++i) Sample(name, labels_[i], value(lineages_[i]));
  }

  // Of its status and what was counted.
  template <typename Value>
  void AddCounted(const char* type, const char* name, const char* help, Value value) {
    Begin(type, name, help);
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      Sample(name, labels_[i], value(lineages_[i], counts_[i]));
    }
  }

  void AddPauses(const char* name, const char* help) {
    Begin("histogram", name, help);
    const std::string bucket = std::string(name) + "_bucket";
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      const PauseCounts& pauses = counts_[i].pauses;
      std::uint64_t up_to = 0;
      for (std::size_t k = 0; k < pauses.counts.size(); ++k) {
        up_to += pauses.counts[k];
        const std::string bound =
            k < PauseCounts::kBounds.size() ? fmt::format("{}", PauseCounts::kBounds[k]) : "+Inf";
        Sample(bucket, labels_[i] + ",le=\"" + bound + "\"", up_to);
      }
      Sample(std::string(name) + "_sum", labels_[i], pauses.seconds);
      Sample(std::string(name) + "_count", labels_[i], up_to);
    }
  }
  std::string Take() { return std::move(text_); }

 private:
  void Begin(const char* type, const char* name, const char* help) {
    text_ += Heading(type, name, help);
  }
  template <typename Value>
  void Sample(const std::string& name, const std::string& labels, Value value) {
    text_ += fmt::format("segue_{}{{{}}} {}\n", name, labels, value);
  }

  const std::vector<ReceiverStatus>& lineages_;
  const std::vector<ReceiverCounts>& counts_;
  std::vector<std::string> labels_;
  std::string text_;
};

void AddCounts(Text& text) {
  using S = ReceiverStatus;
  using C = ReceiverCounts;
  text.AddCounted("gauge", "newest_version", "Newest version at the last look at the store.",
                  [](const S&, const C& c) { return c.newest_version; });
  text.AddCounted("gauge", "version_lag", "Newest version less the one held.",
                  [](const S& s, const C& c) {
                    return c.newest_version > s.version ? c.newest_version - s.version : 0;
                  });
  text.AddCounted("counter", "look_failures_total", "Looks at the store's versions that failed.",
                  [](const S&, const C& c) { return c.look_failures; });
  text.AddCounted("counter", "update_failures_total",
                  "Updates and rebuilds of the engine that failed or were poisoned.",
                  [](const S&, const C& c) { return c.update_failures; });
  text.AddCounted("counter", "pause_failures_total",
                  "Times that the engine did not pause or a gate did not close.",
                  [](const S&, const C& c) { return c.pause_failures; });
  text.AddPauses(
      "pause_seconds",
      "Gate closed to gate open, of every update that was resumed and of every rebuild.");
}

}  // namespace

std::string MetricsText(const EngineIdentity& identity, const std::vector<ReceiverStatus>& lineages,
                        const std::vector<ReceiverCounts>& counts) {
  using S = ReceiverStatus;
  Text text(identity, lineages, counts);
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
  AddCounts(text);
  return text.Take();
}

std::string RelayMetricsText(const EngineIdentity& identity, const RelayStatistics& read,
                             const StoreServerStatistics& served) {
  const std::string engine = fmt::format("engine=\"{}\"", Escaped(identity.engine_id));
  std::string text =
      Heading("counter", "relay_read_bytes_total",
              "Bytes of objects named by their hash, from relays or from the origin.");
  text += fmt::format("segue_relay_read_bytes_total{{{},source=\"relay\"}} {}\n", engine,
                      read.relay_bytes);
  text += fmt::format("segue_relay_read_bytes_total{{{},source=\"origin\"}} {}\n", engine,
                      read.origin_bytes);
  const auto add = [&](const char* type, const char* name, const char* help, std::uint64_t value) {
    text += Heading(type, name, help) + fmt::format("segue_{}{{{}}} {}\n", name, engine, value);
  };
  add("counter", "relay_wrong_objects_total", "Objects of relays whose hash was another.",
      read.lies);
  add("gauge", "relay_kept_bytes", "Bytes that are kept for others.", read.kept_bytes);
  add("gauge", "relay_kept_objects", "Objects that are kept for others.", read.kept_count);
  add("counter", "relay_requests_total", "Requests of other relays and receivers.",
      served.requests);
  add("counter", "relay_refused_total", "Those that were answered by an error.", served.refused);
  add("counter", "relay_sent_bytes_total", "Bytes of objects sent to others.", served.sent_bytes);
  return text;
}

}  // namespace segue
