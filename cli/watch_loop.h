// SPDX-License-Identifier: Apache-2.0
//
// The loop of `segue publish --watch`: looks, shows each version as it is published, waits longer
// after failures, ends between two versions when it is told to stop.
#pragma once

#include <chrono>
#include <functional>

#include "cli/verbs.h"
#include "segue/fleet.h"
#include "segue/publish.h"
#include "segue/publisher.h"
#include "segue/watch.h"

namespace segue::cli {

struct WatchLoop {
  WatchOptions options;
  std::chrono::milliseconds interval{2'000};
  bool json = false;  // One JSON object a line for each version.
  std::function<Json(const PublishReport&)> to_json;
  Cohort cohort;  // Engines that have each version before the next one is published.
};

// What engines are to have after this publish.
AwaitedVersion AwaitedOf(const PublishReport& report, const PublishOptions& options);

Result<Report> RunWatch(const WatchLoop& loop);

}  // namespace segue::cli
