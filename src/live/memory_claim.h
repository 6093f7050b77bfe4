// SPDX-License-Identifier: Apache-2.0
//
// Memory claim: that the bytes which a receiver has bound are its own. Two receivers of one process
// that write the same bytes undo each other's deltas, and each proves what the other takes back: so
// the second one is refused when it binds them, be it of the same lineage, of another, or of
// another lineage of the same group. Ranks of one engine in one process have memory of their own
// each; parts that lie in one another's gaps share nothing.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "delta/live_map.h"
#include "segue/status.h"

namespace segue {

class MemoryClaim {
 public:
  // InvalidArgument, naming both tensors and lineages, where another claim of this process has one
  // of the bytes. `plan` and `map` stay where they are while the claim lives. `device`: whose
  // memory it is, as in BoundModel.
  static Result<std::unique_ptr<MemoryClaim>> Take(const Plan& plan, const LiveMap& map,
                                                   std::string lineage, std::string device);
  ~MemoryClaim();
  MemoryClaim(const MemoryClaim&) = delete;
  MemoryClaim& operator=(const MemoryClaim&) = delete;

 private:
  MemoryClaim(const Plan& plan, const LiveMap& map, std::string lineage, std::string device);
  Status CheckAgainst(const MemoryClaim& other) const;

  const Plan& plan_;
  const LiveMap& map_;
  const std::string lineage_;
  const std::string device_;
  const pid_t process_;
};

}  // namespace segue
