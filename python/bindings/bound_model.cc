// SPDX-License-Identifier: Apache-2.0
//
// Bound model: callbacks enter Python from any thread; what they raise is a failure.
#include "bindings/bound_model.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace segue::python {
namespace {

// A callable that gets a bytearray of 64-bit words in the machine's order, and adds them up over
// all ranks in place.
SumOverRanks MakeSum(const Callback& call, const Raised& raised) {
  return [call, raised](std::span<std::uint64_t> sums) {
    return InPython(call.what(), raised.get(), [&] {
      const nb::bytearray words(sums.data(), sums.size_bytes());
      SEGUE_RETURN_IF_ERROR(call.CallOnly(raised.get(), words));
      if (words.size() != sums.size_bytes()) {
        return InvalidArgument(call.what() + " changed the number of words");
      }
      std::memcpy(sums.data(), words.data(), sums.size_bytes());
      return Status();
    });
  };
}

// A generation that cannot be had is another one: nothing is touched.
std::function<std::uint64_t()> MakeGeneration(const Callback& call, const Raised& raised) {
  auto last = std::make_shared<std::atomic<std::uint64_t>>(0);
  return [call, raised, last] {
    const Status status = call.Call(raised.get(), [&](const nb::object& answer) {
      *last = nb::cast<std::uint64_t>(answer);
      return Status();
    });
    return status.ok() ? last->load() : ~last->load();
  };
}

// Signals are handled in Python's main thread, where it is that one that applies.
StepGate::Ask MakeAsk(const Raised& raised, const Closing& closing) {
  return [raised, closing] {
    if (*closing) return Unavailable("the receiver is being closed");
    return InPython("a signal handler", raised.get(), [] {
      RaisePendingSignal();
      return Status();
    });
  };
}

// Python frees and moves what it has given a tensor only under its lock.
std::function<Status(const std::function<Status()>&)> MakeHoldStill() {
  return [](const std::function<Status()>& read) {
    return InPython("a scan of the weights", nullptr, [&] { return read(); });
  };
}

void SetGate(BoundModel& model, const Callables& callables, const Raised& raised,
             HeldCallables& held, const Closing& closing, StepGate& gate) {
  if (callables.close_gate.is_none()) {
    gate.Guard(model, MakeAsk(raised, closing));
    return;
  }
  model.close_gate = [raised, call = Callback(callables.close_gate, "close_gate", held)](
                         std::chrono::milliseconds deadline) {
    return call.CallOnly(raised.get(), static_cast<double>(deadline.count()) / 1000);
  };
  model.open_gate = [raised, call = Callback(callables.open_gate, "open_gate", held)] {
    return call.CallOnly(raised.get());
  };
}

}  // namespace

BoundModel MakeModel(std::vector<Part>&& parts, Place&& place, const Callables& callables,
                     const Raised& raised, HeldCallables& held, const Closing& closing,
                     StepGate& gate) {
  BoundModel model;
  DeviceOptions& options = model.device_options;
  std::tie(model.device, options.decoder, options.memory_max, options.keep_slots) =
      std::move(place);
  if (model.device.empty()) model.hold_still = MakeHoldStill();
  model.tensors.reserve(parts.size());
  for (auto& [source, view, copy, copy_count] : parts) {
    auto& [name, dtype, shape, address, size] = source;
    model.tensors.push_back({std::move(name), std::move(dtype), std::move(shape),
                             AddressOf(address.value_or(0), size), size, std::move(view), copy,
                             copy_count});
  }
  model.generation = MakeGeneration(Callback(callables.generation, "generation", held), raised);
  if (nb::isinstance<RanksHandle>(callables.sum_over_ranks)) {
    model.sum_over_ranks = nb::cast<const RanksHandle&>(callables.sum_over_ranks).sum;
  } else if (!callables.sum_over_ranks.is_none()) {
    model.sum_over_ranks =
        MakeSum(Callback(callables.sum_over_ranks, "sum_over_ranks", held), raised);
  }
  SetGate(model, callables, raised, held, closing, gate);
  return model;
}

}  // namespace segue::python
