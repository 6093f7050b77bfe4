// SPDX-License-Identifier: Apache-2.0
//
// One profile, as publisher and receiver run it: encode into the store, get, hash and stage,
// preflight, apply. Only Apply() counts as pause: everything it needs was made before.
#include <algorithm>
#include <utility>

#include "bench/measure.h"
#include "delta/applier.h"
#include "delta/encoder.h"
#include "delta/manifest.h"
#include "delta/staged_delta.h"
#include "device/device.h"

namespace segue::bench {
namespace {

constexpr std::string_view kLineage = "bench";

// Medians at the end, samples until then.
struct Samples {
  std::vector<double> encode, fetch, stage, preflight, pause;
};

Manifest MakeManifest(const Plan& plan, Profile profile, const EncodeReport& report) {
  Manifest manifest;
  DeltaIdentity& identity = manifest.identity;
  identity.lineage = kLineage;
  identity.target_version = 1;
  identity.plan = plan.digest();
  identity.base_digest = report.base_digest;
  identity.target_digest = report.target_digest;
  identity.profile = ProfileName(profile);
  identity.changed_chunks = report.payload.row_count;
  identity.changed_elements = report.payload.changed_elements;
  manifest.model_bytes = plan.model_size();
  manifest.payloads.push_back({0, object_name::Payload(kLineage, 1, 0, 1, report.payload.sha256),
                               report.payload.size, report.payload.sha256,
                               report.payload.row_count});
  return manifest;
}

class ProfileMeasurement {
 public:
  ProfileMeasurement(BenchRun& run, Profile profile)
      : run_(run), profile_(profile), name_(ProfileName(profile)) {}

  Result<ProfileFigures> Run() {
    for (unsigned repeat = 0; repeat < run_.options.repeats; ++repeat) {
      run_.Report("encode " + name_, repeat);
      SEGUE_RETURN_IF_ERROR(Publish(repeat + 1 == run_.options.repeats));
    }
    const auto device = MakeHostDevice(run_.threads);
    for (unsigned repeat = 0; repeat < run_.options.repeats; ++repeat) {
      run_.Report("apply " + name_, repeat);
      SEGUE_RETURN_IF_ERROR(Receive(*device));
    }
    SEGUE_RETURN_IF_ERROR(run_.store.Delete(manifest_.payloads[0].object));
    figures_.encode_s = Median(samples_.encode);
    figures_.fetch_s = Median(samples_.fetch);
    figures_.stage_s = Median(samples_.stage);
    figures_.preflight_s = Median(samples_.preflight);
    figures_.pause_s = Median(samples_.pause);
    return figures_;
  }

 private:
  // The sink writes into the store's file; making it durable is not timed.
  Status Publish(bool keep) {
    SEGUE_ASSIGN_OR_RETURN(const auto writer, run_.store.StartWrite());
    EncodeOptions options;
    options.profile = profile_;
    options.threads = run_.threads;
    Result<EncodeReport> encoded = Internal("not run");
    const PeakMeter meter;
    samples_.encode.push_back(Seconds([&] {
      encoded = EncodeDelta(run_.model.plan, run_.model.BaseView(), run_.model.TargetView(),
                            options, [&](ByteSpan bytes) { return writer->Append(bytes); });
    }));
    figures_.publisher_peak_bytes = std::max(figures_.publisher_peak_bytes, meter.PeakBytes());
    if (!encoded.ok()) return encoded.status();
    if (!keep) return {};
    manifest_ = MakeManifest(run_.model.plan, profile_, *encoded);
    figures_.payload_bytes = encoded->payload.size + manifest_.ToJson().size();
    return writer->Commit(manifest_.payloads[0].object).status();
  }

  Status Receive(Device& device) {
    const PayloadEntry& entry = manifest_.payloads[0];
    Result<ByteVector> payload = ByteVector();
    samples_.fetch.push_back(Seconds([&] { payload = run_.store.Get(entry.object, entry.size); }));
    if (!payload.ok()) return payload.status();
    SEGUE_ASSIGN_OR_RETURN(const StagedDelta staged, Stage(entry, *payload));
    *payload = ByteVector();
    figures_.staged_bytes = staged.staged_bytes();
    const MutableModelView live = run_.model.LiveView();
    Applier applier(run_.model.plan, staged, live, device);
    Status status;
    run_.model.Restore(run_.threads);
    samples_.preflight.push_back(Seconds([&] { status = applier.Preflight(); }));
    SEGUE_RETURN_IF_ERROR(status);
    run_.model.Restore(run_.threads);
    samples_.pause.push_back(Seconds([&] { status = applier.Apply(); }));
    SEGUE_RETURN_IF_ERROR(status);
    run_.Verify();
    return {};
  }

  Result<StagedDelta> Stage(const PayloadEntry& entry, ByteSpan payload) {
    const ByteSpan payloads[] = {payload};
    Result<StagedDelta> staged = Internal("not run");
    const PeakMeter meter;
    samples_.stage.push_back(Seconds([&] {
      const Status verified = StagedDelta::VerifyPayload(entry, payload);
      staged = verified.ok() ? StagedDelta::Stage(run_.model.plan, payloads, run_.threads)
                             : Result<StagedDelta>(verified);
    }));
    figures_.receiver_peak_bytes = std::max(figures_.receiver_peak_bytes, meter.PeakBytes());
    return staged;
  }

  BenchRun& run_;
  Profile profile_;
  std::string name_;
  Samples samples_;
  ProfileFigures figures_;
  Manifest manifest_;
};

}  // namespace

Result<ProfileFigures> MeasureProfile(BenchRun& run, Profile profile) {
  return ProfileMeasurement(run, profile).Run();
}

}  // namespace segue::bench
