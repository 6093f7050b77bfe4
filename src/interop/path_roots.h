// SPDX-License-Identifier: Apache-2.0
//
// Path roots: the directories below which a client of the server may name paths. What a path leads
// to counts, links followed, as it is when it is asked for.
#pragma once

#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

class PathRoots {
 public:
  // Everything is allowed.
  PathRoots() = default;
  // InvalidArgument for a root that is no directory. None: nothing is confined.
  static Result<PathRoots> Make(const std::vector<std::string>& roots);

  // The path without links, as far as it exists. InvalidArgument for one that is not absolute, has
  // "..", or leads out of every root.
  Result<std::string> Resolve(const std::string& path) const;

 private:
  std::vector<std::string> roots_;  // Without links.
};

}  // namespace segue
