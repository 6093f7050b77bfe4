// SPDX-License-Identifier: Apache-2.0
//
// A publisher in another world than this machine: for the simulator.
#pragma once

#include <memory>
#include <span>

#include "segue/publisher.h"
#include "sync/environment.h"

namespace segue {

struct PublisherInternals {
  static Result<std::unique_ptr<Publisher>> Open(Environment& environment,
                                                 const PublisherOptions& options,
                                                 std::span<const SourceTensor> base);
};

}  // namespace segue
