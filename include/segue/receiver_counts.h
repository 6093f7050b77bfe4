// SPDX-License-Identifier: Apache-2.0
//
// Receiver counts: what a receiver has counted of one lineage since it was opened, for whoever
// watches it over days (docs/protocol.md, section 8, "Metrics"). Beside it, ReceiverStatus says
// what is true now. Numbers only grow, but for the newest version, and none of them moves an
// update.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace segue {

// How often pauses were how long.
struct PauseCounts {
  // Seconds, ascending; a pause counts at the first bound that it does not exceed.
  static constexpr std::array<double, 13> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10};
  std::array<std::uint64_t, kBounds.size() + 1> counts = {};  // The last one: beyond all bounds.
  double seconds = 0;                                         // Of all of them.

  void Add(double pause) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), pause);
    ++counts[static_cast<std::size_t>(bound - kBounds.begin())];
    seconds += pause;
  }
};

struct ReceiverCounts {
  // Of the store, when its versions were listed last; the version held where that is newer.
  std::uint64_t newest_version = 0;
  std::uint64_t look_failures = 0;  // Times that the store's versions could not be listed.
  // Of the engine, whatever the lineage: updates that failed in the prepare or were poisoned by the
  // apply, and rebuilds that failed.
  std::uint64_t update_failures = 0;
  // Of the engine too: the engine did not pause, or a gate did not close in time.
  std::uint64_t pause_failures = 0;
  // Of updates that were resumed and had this lineage's gate closed, of rebuilds, and of a start
  // that rebuilt weights which served.
  PauseCounts pauses;
};

}  // namespace segue
