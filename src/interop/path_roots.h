// SPDX-License-Identifier: Apache-2.0
//
// Path roots: the directories below which a client of the server may name paths. What a path leads
// to counts, links followed, as it is when it is asked for; and as whoever may write below a root
// can lead it elsewhere a moment later, it is then pinned to the root (base/file_place.h): no file
// outside of the root is read or written by it, whatever happens to the folders on its way.
#pragma once

#include <memory>
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
  // What Resolve() says, pinned to its root, as long as this object or a copy lives. Without roots
  // nothing is pinned.
  Result<std::string> Pin(const std::string& path) const;
  // `text` with pinned paths as people write them; and a status whose message is such a text.
  std::string Reveal(std::string text) const;
  Status Reveal(const Status& status) const;

 private:
  struct Root {
    std::string path;  // Without links.
    std::shared_ptr<const int> folder;
  };
  const Root* Above(const std::string& path) const;

  std::vector<Root> roots_;
};

}  // namespace segue
