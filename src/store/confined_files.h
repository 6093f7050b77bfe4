// SPDX-License-Identifier: Apache-2.0
//
// ConfinedFiles: the file system of a store that strangers reach through a server. No path below
// its root leads out of it: every folder on the way is opened from the one before without following
// a link, and so is the last name. What must hold: nothing outside the root is read, listed, made
// or removed, whatever links are below it and whoever swaps them meanwhile.
//
// A link that somebody laid below the root (to a data disk, say) is refused (ELOOP) though its
// owner may have meant it: the server cannot tell, and what is served to others must not depend on
// it. Whoever opens the folder himself (`dir:`) has its links followed. The root and what is above
// it are the operator's, links included. Hard links and mounts below the root are not seen as such;
// making them needs rights on both sides.
#pragma once

#include <string>

#include "store/file_system.h"

namespace segue {

class ConfinedFiles final : public PosixFileSystem {
 public:
  // Paths that do not begin with `root` and '/' are not confined: those of the root itself.
  explicit ConfinedFiles(const std::string& root);

 protected:
  FilePlace Locate(const std::string& path) override;

 private:
  const std::string root_;
  const std::string prefix_;
};

}  // namespace segue
