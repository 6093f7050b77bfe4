// SPDX-License-Identifier: Apache-2.0
//
// Bound model: tensors, gate, generation and ranks as Python gives them, as segue/receiver.h takes
// them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/callback.h"
#include "bindings/interpreter.h"
#include "bindings/source.h"
#include "segue/receiver.h"
#include "segue/step_gate.h"

namespace segue::python {

using Raised = std::shared_ptr<RaisedInCallback>;
// Set once a receiver is being closed: nothing of it waits at a gate any longer.
using Closing = std::shared_ptr<std::atomic<bool>>;

// A tensor, how its elements lie in the buffer (address and bytes of the source), and which copy of
// how many it is.
using Part = std::tuple<Source, std::optional<View>, std::uint32_t, std::uint32_t>;

struct RanksHandle {
  SumOverRanks sum;
};

struct Callables {
  nb::object generation;
  nb::object sum_over_ranks;  // None, a RanksHandle or a callable.
  nb::object close_gate;      // None: `gate` of MakeModel.
  nb::object open_gate;
};

// In whose memory the tensors are, as in BoundModel: the device, then its options in their order.
using Place = std::tuple<std::string, std::string, std::uint64_t, bool>;

// What callables raise is kept in
// `raised`, and they are added to `held`. `gate` outlives the receiver; Ctrl-C and `closing` end
// the wait for those inside it.
BoundModel MakeModel(std::vector<Part>&& parts, Place&& place, const Callables& callables,
                     const Raised& raised, HeldCallables& held, const Closing& closing,
                     StepGate& gate);

}  // namespace segue::python
