// SPDX-License-Identifier: Apache-2.0
//
// From an optimizer's step to an engine that is ready to apply, through the public API: publisher
// with tensors on the device, a store on a RAM disk, receiver with weights on the device. The two
// have the GPU one after the other: three copies of the model do not fit into it.
#include <filesystem>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/tiled_model.h"
#include "segue/publisher.h"
#include "segue/receiver.h"

namespace segue::gpu_check {
namespace {

constexpr double kReadyMax = 0.5;  // Issue: optimizer's step done to ready to apply, 55.6 GB.

// A directory that goes with what is in it.
class Scratch {
 public:
  static Result<std::unique_ptr<Scratch>> Make(const std::string& parent) {
    std::string path = parent + "/segue-gpu-check-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return InvalidArgument("--scratch: cannot make a directory in '" + parent + "'");
    }
    return std::unique_ptr<Scratch>(new Scratch(path));
  }
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::vector<SourceTensor> SourcesOf(const TiledModel& model, const DeviceModel& device) {
  std::vector<SourceTensor> sources;
  for (std::uint64_t i = 0; i < model.count(); ++i) {
    const TensorSpec& spec = model.plan.tensors()[i].spec;
    sources.push_back({spec.name, std::string(DtypeName(spec.dtype)), spec.shape, device.Tensor(i),
                       model.unit()});
  }
  return sources;
}

BoundModel BoundTo(const TiledModel& model, const DeviceModel& device) {
  BoundModel bound;
  bound.device = "cuda:0";
  for (const SourceTensor& source : SourcesOf(model, device)) {
    bound.tensors.push_back({.name = source.name,
                             .dtype = source.dtype,
                             .shape = source.shape,
                             .data = const_cast<std::byte*>(source.data),
                             .size = source.size});
  }
  bound.close_gate = [](std::chrono::milliseconds) { return Status(); };
  bound.open_gate = [] { return Status(); };
  return bound;
}

// Version 1 into the store; seconds from the call to the durable version.
Result<double> PublishStep(Check& check, Gpu& gpu, const TiledModel& model,
                           const std::string& store) {
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel trained, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(trained.Restore());
  PublisherOptions options;
  options.store = store;
  options.device = "cuda:0";
  options.threads = check.options.threads;
  const std::vector<SourceTensor> sources = SourcesOf(model, trained);
  SEGUE_ASSIGN_OR_RETURN(const auto publisher, Publisher::Open(options, sources));
  SEGUE_RETURN_IF_ERROR(trained.Load(model.target.bytes()));
  Result<PublishReport> report = Internal("not run");
  const double seconds = bench::Seconds([&] { report = publisher->Publish(sources); });
  if (!report.ok()) return report.status();
  check.Add(Figure{"diff, encode and outer Zstd",
                   model.workload,
                   model.size(),
                   report->encode_s,
                   {{"payload_bytes", static_cast<double>(report->payload_bytes)}}});
  check.Add(Figure{"commit to the store", model.workload, model.size(), report->commit_s, {}});
  return seconds;
}

// From the version in the store until it is prepared; then it is applied and looked at.
Result<double> Receive(Check& check, Gpu& gpu, const TiledModel& model, const std::string& store,
                       const std::string& staging) {
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(live.Restore());
  ReceiverOptions options;
  options.store = store;
  options.staging = staging;
  options.threads = check.options.threads;
  options.background_threads = check.options.threads != 0 ? check.options.threads : 16;
  options.catch_up = false;
  SEGUE_ASSIGN_OR_RETURN(const auto receiver, Receiver::Open(options, BoundTo(model, live)));
  PrepareRequest request;
  request.session = "check";
  Status prepared;
  const double seconds = bench::Seconds([&] {
    prepared = receiver->Prepare(request);
    if (prepared.ok()) prepared = receiver->WaitPrepared();
  });
  SEGUE_RETURN_IF_ERROR(prepared);
  SEGUE_RETURN_IF_ERROR(receiver->Apply(request.session));
  SEGUE_RETURN_IF_ERROR(receiver->Resume(request.session));
  SEGUE_ASSIGN_OR_RETURN(const bool right, live.HoldsTarget());
  check.Expect(right, "pipeline: the engine's weights are not the trainer's");
  const UpdateReport last = receiver->status().last;
  check.Add(Figure{"fetch", model.workload, model.size(), last.fetch_s, {}});
  check.Add(Figure{"receiver: hash, outer decode", model.workload, model.size(), last.stage_s, {}});
  check.Add(Figure{
      "receiver: to the GPU and preflight", model.workload, model.size(), last.preflight_s, {}});
  check.Add(Figure{"receiver: pause",
                   model.workload,
                   model.size(),
                   last.pause_s,
                   {{"apply_seconds", last.apply_s}}});
  return seconds;
}

}  // namespace

Status MeasurePipeline(Check& check, Gpu& gpu) {
  const CheckOptions& options = check.options;
  SEGUE_ASSIGN_OR_RETURN(const auto scratch, Scratch::Make(options.scratch));
  SEGUE_ASSIGN_OR_RETURN(const TiledModel model, TiledModel::Generate(options, "nvfp4-0.085"));
  const std::string store = "dir:" + scratch->path() + "/store";
  SEGUE_ASSIGN_OR_RETURN(const double published, PublishStep(check, gpu, model, store));
  SEGUE_ASSIGN_OR_RETURN(const double received,
                         Receive(check, gpu, model, store, scratch->path() + "/staging"));
  const double ready = published + received;
  check.Add(Figure{"optimizer's step done to ready to apply",
                   model.workload,
                   model.size(),
                   ready,
                   {{"trainer_seconds", published}, {"engine_seconds", received}}});
  if (model.size() >= kGoalSize) {
    check.Add(Goal{"optimizer's step done to ready to apply", ready, kReadyMax, "s"});
  }
  return {};
}

}  // namespace segue::gpu_check
