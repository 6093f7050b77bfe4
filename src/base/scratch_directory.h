// SPDX-License-Identifier: Apache-2.0
//
// ScratchDirectory: a new directory that goes away with all that is in it. Not copied. One whose
// process was killed goes when the next is made beside it: its owner holds a lock (flock) on it
// while it lives, and a file in it says what it is, so that nobody else's directory ever goes.
#pragma once

#include <string>
#include <utility>

#include "segue/status.h"

namespace segue {

class ScratchDirectory {
 public:
  // Below `parent`, whose last part is made if it is not there; empty: the system's directory for
  // temporary files. `label` begins its name.
  static Result<ScratchDirectory> Make(const std::string& parent, const std::string& label);

  ScratchDirectory(ScratchDirectory&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(lock_, other.lock_);
    return *this;
  }
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  ScratchDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_ = -1;  // Descriptor of the directory.
};

}  // namespace segue
