// SPDX-License-Identifier: Apache-2.0
//
// segue/receiver_group.h in Python, and steps that enter the gates of several lineages.
#include "segue/receiver_group.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>

#include "bindings/bound_model.h"
#include "bindings/hooks.h"
#include "bindings/module.h"
#include "bindings/receiver_handle.h"
#include "bindings/step.h"
#include "bindings/update_once.h"
#include "segue/enter_all.h"

namespace segue::python {
namespace {

using Targets = std::map<std::string, std::uint64_t>;
using Version = std::optional<std::uint64_t>;

// --- Opening
// --------------------------------------------------------------------------------------

// One lineage of this process: tensors, place, generation, sum_over_ranks, close_gate, open_gate.
using BoundLineage =
    std::tuple<std::vector<Part>, Place, nb::object, nb::object, nb::object, nb::object>;

GroupOptions MakeOptions(std::vector<ReceiverOptions>&& lineages, bool same_version,
                         const HooksHandle* hooks, GroupHandle::Parts& parts) {
  GroupOptions options;
  options.lineages = std::move(lineages);
  options.same_version = same_version;
  if (hooks != nullptr) options.hooks = hooks->Make(parts.raised, parts.callables);
  parts.stop = options.hooks.stop;
  return options;
}

std::unique_ptr<GroupHandle> OpenBound(std::vector<ReceiverOptions> lineages,
                                       std::vector<BoundLineage> bound, bool same_version,
                                       const HooksHandle* hooks) {
  GroupHandle::Parts parts;
  const GroupOptions options = MakeOptions(std::move(lineages), same_version, hooks, parts);
  std::vector<BoundModel> models;
  for (auto& [tensors, place, generation, sum_over_ranks, close_gate, open_gate] : bound) {
    parts.gates.push_back(std::make_shared<StepGate>());
    models.push_back(MakeModel(std::move(tensors), std::move(place),
                               {std::move(generation), std::move(sum_over_ranks),
                                std::move(close_gate), std::move(open_gate)},
                               parts.raised, parts.callables, parts.closing, *parts.gates.back()));
  }
  return OpenHandle<ReceiverGroup>(std::move(parts),
                                   [&] { return ReceiverGroup::Open(options, std::move(models)); });
}

std::unique_ptr<GroupHandle> OpenSegments(std::vector<ReceiverOptions> lineages, bool same_version,
                                          const HooksHandle* hooks) {
  GroupHandle::Parts parts;
  const GroupOptions options = MakeOptions(std::move(lineages), same_version, hooks, parts);
  return OpenHandle<ReceiverGroup>(std::move(parts), [&] { return ReceiverGroup::Open(options); });
}

// --- Updates
// --------------------------------------------------------------------------------------

GroupRequest MakeRequest(std::string session, Version to, const Targets& targets) {
  GroupRequest request;
  request.session = std::move(session);
  request.target_version = to;
  for (const auto& [lineage, version] : targets) {
    request.lineages[lineage].target_version = version;
  }
  return request;
}

void Update(GroupHandle& handle, Version to, const Targets& targets, bool flush_cache,
            bool abort_requests) {
  const bool signals = IsMainThread();
  const GroupRequest request = MakeRequest(NewSession(), to, targets);
  handle.Use(
      [&](ReceiverGroup& group) {
        return UpdateOnce(handle, group, request, {flush_cache, abort_requests}, signals);
      },
      kUpdatingCall);
}

void WaitPrepared(GroupHandle& handle) {
  handle.RefuseInOwnThread("wait_prepared()");
  const bool signals = IsMainThread();
  handle.Use(
      [&](ReceiverGroup& group) {
        if (!signals) return group.WaitPrepared();
        return handle.WaitPreparedOrSignal(group, FirstStatus(group).session);
      },
      kWaitingCall);
}

// --- A step of all lineages of this process
// --------------------------------------------------------

class LocalStepOfAll {
 public:
  LocalStepOfAll(std::vector<std::shared_ptr<StepGate>> owned, std::chrono::milliseconds timeout)
      : owned_(std::move(owned)), timeout_(timeout) {
    for (const auto& gate : owned_) gates_.push_back(gate.get());
  }
  LocalStepOfAll(LocalStepOfAll&& other) noexcept
      : owned_(std::move(other.owned_)),
        gates_(std::move(other.gates_)),
        counts_(std::move(other.counts_)),
        timeout_(other.timeout_),
        entry_(std::move(other.entry_)) {}
  LocalStepOfAll& operator=(LocalStepOfAll&&) = delete;
  ~LocalStepOfAll() {
    if (entry_.EndIfInside()) LeaveGates();
  }

  void Enter() {
    entry_.EnterOnce(
        timeout_, [this] { return TryEnterAll<StepGate>(gates_); },
        [this](const auto& stop, auto wait) {
          return EnterAllUnless<StepGate>(stop, gates_, wait);
        });
    counts_.clear();
    for (const StepGate* gate : gates_) ++*counts_.emplace_back(StepsHere(gate));
  }
  void Leave() {
    if (entry_.LeaveOnce()) LeaveGates();
  }

 private:
  void LeaveGates() {
    for (const StepCount& count : counts_) --*count;
    LeaveAll<StepGate>(gates_);
  }

  std::vector<std::shared_ptr<StepGate>> owned_;
  std::vector<StepGate*> gates_;
  std::vector<StepCount> counts_;
  std::chrono::milliseconds timeout_;
  StepEntry entry_;
};

void BindSteps(nb::module_& module) {
  nb::class_<LocalStepOfAll>(module, "LocalStepOfAll", "A step between updates of a group.")
      .def(
          "__enter__",
          [](LocalStepOfAll& self) -> LocalStepOfAll& {
            self.Enter();
            return self;
          },
          nb::rv_policy::reference)
      .def(
          "__exit__",
          [](LocalStepOfAll& self, nb::handle, nb::handle, nb::handle) { self.Leave(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

// --- The class
// ------------------------------------------------------------------------------------

void BindCalls(nb::class_<GroupHandle>& group) {
  using H = GroupHandle;
  using G = ReceiverGroup;
  group.def("update", &Update, nb::arg("to").none(), nb::arg("targets"), nb::arg("flush_cache"),
            nb::arg("abort_requests"));
  group.def("wait_prepared", &WaitPrepared);
  group.def(
      "prepare",
      [](H& self, std::string session, Version to, const Targets& targets) {
        const GroupRequest request = MakeRequest(std::move(session), to, targets);
        self.Use([&](G& used) { return used.Prepare(request); }, kUpdatingCall);
      },
      nb::arg("session"), nb::arg("to").none(), nb::arg("targets"));
  group.def(
      "apply",
      [](H& self, const std::string& session, bool flush, bool abort_requests) {
        self.Use([&](G& used) -> Status {
          SEGUE_RETURN_IF_ERROR(self.CheckOutside());
          return used.Apply(session, {flush, abort_requests});
        });
      },
      nb::arg("session"), nb::arg("flush_cache"), nb::arg("abort_requests"));
  group.def(
      "resume",
      [](H& self, const std::string& session, bool keep_pause) {
        self.Use([&](G& used) { return used.Resume(session, keep_pause); });
      },
      nb::arg("session"), nb::arg("keep_pause"));
  group.def(
      "abort",
      [](H& self, const std::string& session) {
        self.RefuseInOwnThread("abort()");
        self.Use([&](G& used) { return used.Abort(session); });
      },
      nb::arg("session"));
  group.def("clear", [](H& self) { self.Use([](G& used) { return used.Clear(); }); });
  group.def(
      "rebuild",
      [](H& self, Version to, const Targets& targets) {
        self.Use(
            [&](G& used) -> Status {
              SEGUE_RETURN_IF_ERROR(self.CheckOutside());
              return to ? used.Rebuild(*to) : used.Rebuild(targets);
            },
            kRebuildingCall);
      },
      nb::arg("to").none(), nb::arg("targets"));
  group.def(
      "follow",
      [](H& self, double interval) {
        self.RefuseInOwnThread("follow()");
        self.Use([&](G& used) { return used.Follow(Milliseconds(interval)); });
      },
      nb::arg("interval"));
  group.def("status", [](H& self) {
    return self.Use([](G& used) { return Result<std::vector<ReceiverStatus>>(used.status()); },
                    kAskingCall);
  });
  group.def("counts", [](H& self) {
    return self.Use([](G& used) { return Result<std::vector<ReceiverCounts>>(used.counts()); });
  });
  group.def(
      "versions",
      [](H& self, const std::string& lineage) {
        return self.Use([&](G& used) { return used.Versions(lineage); }, kListingCall);
      },
      nb::arg("lineage"));
}

}  // namespace

void BindReceiverGroup(nb::module_& module) {
  BindSteps(module);
  nb::class_<GroupHandle> group(module, "ReceiverGroup", "As in segue/receiver_group.h.",
                                nb::type_slots(HandleSlots<ReceiverGroup>()));
  group.def_static("open_bound", &OpenBound, nb::arg("options"), nb::arg("bound"),
                   nb::arg("same_version"), nb::arg("hooks").none());
  group.def_static("open_segments", &OpenSegments, nb::arg("options"), nb::arg("same_version"),
                   nb::arg("hooks").none());
  BindCalls(group);
  group.def(
      "step",
      [](GroupHandle& self, double timeout, bool proven) {
        if (proven) OrRaise(self.CheckWeights());
        return LocalStepOfAll(self.gates(), Milliseconds(timeout));
      },
      nb::arg("timeout"), nb::arg("proven"));
  group.def("close", &GroupHandle::Close);
  group.def_prop_ro("closed", &GroupHandle::is_closed);
}

}  // namespace segue::python
