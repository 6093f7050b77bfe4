// SPDX-License-Identifier: Apache-2.0
//
// Memory claims of this process, each held against all others when it is taken.
#include "live/memory_claim.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "delta/overlap.h"

namespace segue {
namespace {

struct Claims {
  std::mutex mutex;
  std::vector<const MemoryClaim*> all;
};

// Receivers that live until the process ends come here after static objects are gone.
Claims& AllClaims() {
  static Claims* const claims = new Claims();
  return *claims;
}

std::string NameOf(const Plan& plan, const LiveMap::Part& part) {
  return "tensor '" + plan.tensors()[part.tensor].spec.name + "'";
}

}  // namespace

MemoryClaim::MemoryClaim(const Plan& plan, const LiveMap& map, std::string lineage,
                         std::string device)
    : plan_(plan),
      map_(map),
      lineage_(std::move(lineage)),
      device_(std::move(device)),
      process_(::getpid()) {}

Result<std::unique_ptr<MemoryClaim>> MemoryClaim::Take(const Plan& plan, const LiveMap& map,
                                                       std::string lineage, std::string device) {
  std::unique_ptr<MemoryClaim> claim(
      new MemoryClaim(plan, map, std::move(lineage), std::move(device)));
  Claims& claims = AllClaims();
  const std::lock_guard lock(claims.mutex);
  for (const MemoryClaim* other : claims.all) SEGUE_RETURN_IF_ERROR(claim->CheckAgainst(*other));
  claims.all.push_back(claim.get());
  return claim;
}

MemoryClaim::~MemoryClaim() {
  Claims& claims = AllClaims();
  const std::lock_guard lock(claims.mutex);
  std::erase(claims.all, this);
}

// What a parent claimed is no concern of its forked child, whose memory is another.
Status MemoryClaim::CheckAgainst(const MemoryClaim& other) const {
  if (other.process_ != process_ || other.device_ != device_) return {};
  const std::optional<SharedParts> shared =
      FindShared(plan_, map_.parts(), other.plan_, other.map_.parts());
  if (!shared) return {};
  return InvalidArgument(NameOf(plan_, *shared->first) + " of lineage '" + lineage_ +
                         "' lies in memory that a receiver of this process has bound already, as " +
                         NameOf(other.plan_, *shared->second) + " of lineage '" + other.lineage_ +
                         "': one receiver alone writes a tensor's bytes; close the other one "
                         "first, or publish what two models share in one lineage only");
}

}  // namespace segue
