// SPDX-License-Identifier: Apache-2.0
//
// Fetch: the payloads of a chain of manifests, verified, staged and joined into one delta that also
// lies in one file, so that an apply can be resolved without the store.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "delta/manifest.h"
#include "delta/staged_delta.h"
#include "segue/progress.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

struct FetchedDelta {
  std::string path;  // The one payload file; not synced.
  std::uint64_t size = 0;
  Sha256 sha256;
  StagedDelta staged;
  std::uint64_t fetched_bytes = 0;
  double fetch_s = 0;
  double stage_s = 0;  // Hash, outer codec, composition.
};

// `chain` has at least one manifest. Files are written below `directory`, which exists; on failure
// the caller removes it. A stop is seen between two pieces of a payload and between two versions:
// Unavailable.
Result<FetchedDelta> FetchChain(Store& store, const Plan& plan, const std::vector<Manifest>& chain,
                                const std::string& directory, unsigned threads,
                                const Progress& progress, const std::stop_token& stop = {});

// Maps a payload file, checks it against size and hash, and stages it.
Result<StagedDelta> StageFile(const Plan& plan, const std::string& path, std::uint64_t size,
                              const Sha256& sha256, unsigned threads);

}  // namespace segue
