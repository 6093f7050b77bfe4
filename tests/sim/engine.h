// SPDX-License-Identifier: Apache-2.0
//
// Engine: reads all weights again and again behind the gate, piece by piece, as forward steps do.
// The checker that matters most is here: what it reads between entering and leaving is the version
// that is reported, every byte.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sim/site.h"

namespace segue::sim {

// What is reported inside the gate; nothing where it is not known (a record that was never
// finished).
using ReportedVersion = std::function<std::optional<std::uint64_t>()>;

// One step: waits for the gate, reads, leaves. `label` names the reader in messages.
void ReadOnce(Site& site, SimSegment& segment, unsigned slot, const ReportedVersion& reported,
              const std::string& label);

// The same of two segments that move together: inside both gates they are the same, byte for byte.
// Whoever finds one gate closed waits outside of both.
void ReadPairOnce(Site& site, SimSegment& first, unsigned first_slot, SimSegment& second,
                  unsigned second_slot, const std::string& label);

// An engine of another process, attached to shared memory of that name; ends with the simulation.
void RunEngine(Site& site, Process& process, const std::string& segment);
// One that is attached to both.
void RunPairEngine(Site& site, Process& process, const std::string& first,
                   const std::string& second);

}  // namespace segue::sim
