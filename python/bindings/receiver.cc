// SPDX-License-Identifier: Apache-2.0
//
// segue/receiver.h in Python.
#include "segue/receiver.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/bound_model.h"
#include "bindings/hooks.h"
#include "bindings/module.h"
#include "bindings/receiver_handle.h"
#include "bindings/record.h"
#include "bindings/step.h"
#include "bindings/update_once.h"

namespace segue::python {
namespace {

using Version = std::optional<std::uint64_t>;

ReceiverHandle::Parts MakeParts(ReceiverOptions& options, const HooksHandle* hooks) {
  ReceiverHandle::Parts parts;
  parts.gates.push_back(std::make_shared<StepGate>());
  if (hooks != nullptr) options.hooks = hooks->Make(parts.raised, parts.callables);
  parts.stop = options.hooks.stop;
  return parts;
}

std::unique_ptr<ReceiverHandle> OpenBound(ReceiverOptions options, std::vector<Part> tensors,
                                          Place place, nb::object generation,
                                          nb::object sum_over_ranks, nb::object close_gate,
                                          nb::object open_gate, const HooksHandle* hooks) {
  ReceiverHandle::Parts parts = MakeParts(options, hooks);
  BoundModel model = MakeModel(std::move(tensors), std::move(place),
                               {std::move(generation), std::move(sum_over_ranks),
                                std::move(close_gate), std::move(open_gate)},
                               parts.raised, parts.callables, parts.closing, *parts.gates.front());
  return OpenHandle<Receiver>(std::move(parts),
                              [&] { return Receiver::Open(options, std::move(model)); });
}

std::unique_ptr<ReceiverHandle> OpenSegment(ReceiverOptions options, const HooksHandle* hooks) {
  ReceiverHandle::Parts parts = MakeParts(options, hooks);
  return OpenHandle<Receiver>(std::move(parts), [&] { return Receiver::Open(options); });
}

// --- Updates
// --------------------------------------------------------------------------------------

UpdateReport Update(ReceiverHandle& handle, Version to, bool flush_cache, bool abort_requests) {
  const bool signals = IsMainThread();
  PrepareRequest request;
  request.session = NewSession();
  request.target_version = to;
  const ApplyChoices choices{flush_cache, abort_requests};
  return handle.Use(
      [&](Receiver& receiver) -> Result<UpdateReport> {
        SEGUE_RETURN_IF_ERROR(UpdateOnce(handle, receiver, request, choices, signals));
        return receiver.status().last;
      },
      kUpdatingCall);
}

void WaitPrepared(ReceiverHandle& handle) {
  handle.RefuseInOwnThread("wait_prepared()");
  const bool signals = IsMainThread();
  handle.Use(
      [&](Receiver& receiver) {
        if (!signals) return receiver.WaitPrepared();
        return handle.WaitPreparedOrSignal(receiver, receiver.status().session);
      },
      kWaitingCall);
}

// --- Steps of this process's threads
// --------------------------------------------------------------

struct LocalStep {
  LocalStep(ReceiverHandle& of, std::chrono::milliseconds wait)
      : receiver(&of), gate(of.gates().front()), timeout(wait) {}
  LocalStep(LocalStep&&) = default;
  ~LocalStep() {
    if (entry.EndIfInside()) LeaveGate();
  }
  void Enter() {
    entry.EnterOnce(
        timeout, [this] { return gate->TryEnter(); },
        [this](const auto& stop, auto wait) { return gate->EnterUnless(stop, wait); });
    count = StepsHere(gate.get());
    ++*count;
  }
  void Leave() {
    if (entry.LeaveOnce()) LeaveGate();
  }
  void LeaveGate() {
    --*count;
    gate->Leave();
  }
  std::uint64_t version() const {
    return receiver->Use([](Receiver& used) { return Result<ReceiverStatus>(used.status()); })
        .version;
  }

  ReceiverHandle* receiver;  // Kept by the step's Python object.
  std::shared_ptr<StepGate> gate;
  StepCount count;
  std::chrono::milliseconds timeout;
  StepEntry entry;
};

// --- Classes
// --------------------------------------------------------------------------------------

void BindReports(nb::module_& module) {
  using U = UpdateReport;
  Record<U>(module, "UpdateReport", "One update: sizes in bytes, times in seconds.")
      .Field("base_version", &U::base_version, "What the weights were before.")
      .Field("target_version", &U::target_version, "What they are since.")
      .Field("steps", &U::steps, "Published deltas that were joined into one.")
      .Field("payload_bytes", &U::payload_bytes, "Fetched.")
      .Field("staged_bytes", &U::staged_bytes, "Held in memory for the apply.")
      .Field("device_bytes", &U::device_bytes, "Peak of staging on a GPU and in pinned memory.")
      .Field("changed_chunks", &U::changed_chunks, "Of the model, that were written to.")
      .Field("changed_elements", &U::changed_elements, "Of all tensors, that have another value.")
      .Field("fetch_s", &U::fetch_s, "Reading payloads from the store.")
      .Field("stage_s", &U::stage_s, "Their hashes, the outer codec, joining steps.")
      .Field("preflight_s", &U::preflight_s, "The base proven, while the engine served.")
      .Field("gate_s", &U::gate_s, "From closing the gate until nobody was inside.")
      .Field("apply_s", &U::apply_s, "Changed bytes written and proven.")
      .Field("pause_s", &U::pause_s, "From closing the gate until it was open again.")
      .Field("pause_started_ns", &U::pause_started_ns, "Of the machine's monotonic clock.")
      .Field("fence_completed_ns", &U::fence_completed_ns, "The same; nobody was inside any more.")
      .Field("resumed_ns", &U::resumed_ns, "The same; the gate was open again.")
      .Field("flushed_caches", &U::flushed_caches, "That the engine's hooks reset.");
  using S = ReceiverStatus;
  Record<S>(module, "ReceiverStatus", "What a receiver holds and does.")
      .Field("name", &S::name, "Of the segment; empty for bound weights.")
      .Named<ReceiverStateName>(
          "state", &S::state, ReceiverState::kPoisoned,
          "'IDLE', 'PREPARING', 'PREPARED', ... (docs/protocol.md, section 7).")
      .Field("ready", &S::ready, "The bytes are the version's, proven, and the gate is open.")
      .Field("message", &S::message, "Why it failed or is not ready.")
      .Named<StatusCodeName>("failure", &S::failure, StatusCode::kInternal,
                             "Code of the update that failed, aborted or poisoned, else 'ok'.")
      .Field("session", &S::session, "Named by the prepare; empty without one.")
      .Field("lineage", &S::lineage, "Whose versions the weights are.")
      .Field("version", &S::version, "That the weights are now.")
      .Field("base_version", &S::base_version, "Of the update that runs or ended last.")
      .Field("target_version", &S::target_version, "As version when no update runs.")
      .Field("digest", &S::digest, "32 hexadecimal digits.")
      .Field("plan_digest", &S::plan_digest,
             "Of names, dtypes and shapes: SHA-256, 64 hexadecimal digits.")
      .Field("model_bytes", &S::model_bytes, "Of all tensors of the model, on every rank.")
      .Field("decoder", &S::decoder, "Who decodes on a GPU; empty without one.")
      .Field("engines", &S::engines, "Attached now.")
      .Field("applied_count", &S::applied_count,
             "Updates that were applied since the weights were loaded.")
      .Field("scrub_passes", &S::scrub_passes, "Whole scans that agreed.")
      .Field("scrub_faults", &S::scrub_faults, "Scans that found other bytes than the version's.")
      .Field("last", &S::last, "The last update that was applied.");
}

void BindCounts(nb::module_& module) {
  using P = PauseCounts;
  Record<P>(module, "PauseCounts", "How often pauses were how long.")
      .Field("counts", &P::counts, "By the first of BOUNDS not exceeded; the last one: beyond all.")
      .Field("seconds", &P::seconds, "Of all of them.");
  module.attr("PauseCounts").attr("BOUNDS") =
      nb::tuple(nb::cast(std::vector<double>(P::kBounds.begin(), P::kBounds.end())));
  using C = ReceiverCounts;
  Record<C>(module, "ReceiverCounts", "What a receiver has counted since it was opened.")
      .Field("newest_version", &C::newest_version, "When the store's versions were listed last.")
      .Field("look_failures", &C::look_failures, "Times that they could not be listed.")
      .Field("update_failures", &C::update_failures, "Updates and rebuilds that failed.")
      .Field("pause_failures", &C::pause_failures, "The engine or a gate did not stop in time.")
      .Field("pauses", &C::pauses, "How long users were held: PauseCounts.");
}

void BindOptions(nb::module_& module) {
  using O = ReceiverOptions;
  nb::class_<O>(module, "ReceiverOptions", "As in segue/receiver.h.")
      .def(nb::init<>())
      .def_rw("store", &O::store)
      .def_rw("lineage", &O::lineage)
      .def_rw("checkpoint", &O::checkpoint)
      .def_rw("name", &O::name)
      .def_rw("staging", &O::staging)
      .def_rw("threads", &O::threads)
      .def_rw("background_threads", &O::background_threads)
      .def_prop_rw(
          "gate_timeout",
          [](const O& o) { return static_cast<double>(o.gate_deadline.count()) / 1000; },
          [](O& o, double seconds) { o.gate_deadline = Milliseconds(seconds); })
      .def_rw("scrub_rate", &O::scrub_rate)
      .def_rw("rebuild", &O::rebuild)
      .def_rw("catch_up", &O::catch_up)
      .def(
          "set_keys",
          [](O& o, std::string sign, std::vector<std::string> known) {
            o.keys = {std::move(sign), std::move(known)};
          },
          nb::arg("sign_key"), nb::arg("public_keys"));
}

void BindSteps(nb::module_& module) {
  nb::class_<LocalStep>(module, "LocalStep", "A step between updates of bound weights.")
      .def(
          "__enter__",
          [](LocalStep& self) -> LocalStep& {
            self.Enter();
            return self;
          },
          nb::rv_policy::reference)
      .def(
          "__exit__", [](LocalStep& self, nb::handle, nb::handle, nb::handle) { self.Leave(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def_prop_ro("version", &LocalStep::version, "That the weights are.");
  const nb::class_<RanksHandle> ranks_class(module, "LocalRanks",
                                            "One rank of several that are threads here.");
  module.def(
      "make_local_ranks",
      [](unsigned count, double timeout) {
        std::vector<RanksHandle> ranks;
        for (SumOverRanks& sum : MakeLocalRanks(count, Milliseconds(timeout))) {
          ranks.push_back({std::move(sum)});
        }
        return ranks;
      },
      nb::arg("count"), nb::arg("timeout"));
}

void BindCalls(nb::class_<ReceiverHandle>& receiver) {
  using H = ReceiverHandle;
  receiver.def("update", &Update, nb::arg("to").none(), nb::arg("flush_cache"),
               nb::arg("abort_requests"));
  receiver.def("wait_prepared", &WaitPrepared);
  receiver.def(
      "prepare",
      [](H& self, std::string session, Version to, Version base) {
        PrepareRequest request;
        request.session = std::move(session);
        request.target_version = to;
        request.base_version = base;
        self.Use([&](Receiver& used) { return used.Prepare(request); }, kUpdatingCall);
      },
      nb::arg("session"), nb::arg("to").none(), nb::arg("base").none());
  receiver.def(
      "apply",
      [](H& self, const std::string& session, bool flush, bool abort_requests) {
        self.Use([&](Receiver& used) -> Status {
          SEGUE_RETURN_IF_ERROR(self.CheckOutside());
          return used.Apply(session, {flush, abort_requests});
        });
      },
      nb::arg("session"), nb::arg("flush_cache"), nb::arg("abort_requests"));
  receiver.def(
      "resume",
      [](H& self, const std::string& session, bool keep_pause) {
        self.Use([&](Receiver& used) { return used.Resume(session, keep_pause); });
      },
      nb::arg("session"), nb::arg("keep_pause"));
  receiver.def(
      "abort",
      [](H& self, const std::string& session) {
        self.RefuseInOwnThread("abort()");
        self.Use([&](Receiver& used) { return used.Abort(session); });
      },
      nb::arg("session"));
  receiver.def("clear", [](H& self) { self.Use([](Receiver& used) { return used.Clear(); }); });
  receiver.def(
      "rebuild",
      [](H& self, Version to) {
        self.Use(
            [&](Receiver& used) -> Status {
              SEGUE_RETURN_IF_ERROR(self.CheckOutside());
              return used.Rebuild(to);
            },
            kRebuildingCall);
      },
      nb::arg("to").none());
  receiver.def(
      "follow",
      [](H& self, double interval) {
        self.RefuseInOwnThread("follow()");
        self.Use([&](Receiver& used) { return used.Follow(Milliseconds(interval)); });
      },
      nb::arg("interval"));
  receiver.def("status", [](H& self) {
    return self.Use([](Receiver& used) { return Result<ReceiverStatus>(used.status()); },
                    kAskingCall);
  });
  receiver.def("counts", [](H& self) {
    return self.Use([](Receiver& used) { return Result<ReceiverCounts>(used.counts()); });
  });
  receiver.def("versions", [](H& self) {
    return self.Use([](Receiver& used) { return used.Versions(); }, kListingCall);
  });
}

}  // namespace

void BindReceiver(nb::module_& module) {
  BindReports(module);
  BindCounts(module);
  BindOptions(module);
  BindSteps(module);
  nb::class_<ReceiverHandle> receiver(module, "Receiver", "As in segue/receiver.h.",
                                      nb::type_slots(HandleSlots<Receiver>()));
  receiver.def_static("open_bound", &OpenBound, nb::arg("options"), nb::arg("tensors"),
                      nb::arg("place"), nb::arg("generation"), nb::arg("sum_over_ranks").none(),
                      nb::arg("close_gate").none(), nb::arg("open_gate").none(),
                      nb::arg("hooks").none());
  receiver.def_static("open_segment", &OpenSegment, nb::arg("options"), nb::arg("hooks").none());
  BindCalls(receiver);
  receiver.def(
      "step",
      [](ReceiverHandle& self, double timeout, bool proven) {
        if (proven) OrRaise(self.CheckWeights());
        return LocalStep(self, Milliseconds(timeout));
      },
      nb::arg("timeout"), nb::arg("proven"), nb::keep_alive<0, 1>());
  receiver.def("close", &ReceiverHandle::Close);
  receiver.def_prop_ro("closed", &ReceiverHandle::is_closed);
  module.def(
      "remove_segment", [](const std::string& name) { Run([&] { return RemoveSegment(name); }); },
      nb::arg("name"), "Ends the shared memory segment; who is attached keeps what it has.");
}

}  // namespace segue::python
