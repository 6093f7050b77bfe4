// SPDX-License-Identifier: Apache-2.0
//
// ScratchDirectory: a new directory that goes away with all that is in it. Not copied.
#pragma once

#include <string>
#include <utility>

#include "segue/status.h"

namespace segue {

class ScratchDirectory {
 public:
  // Below `parent`, which is made if it is not there; empty: the system's directory for temporary
  // files. `label` begins its name.
  static Result<ScratchDirectory> Make(const std::string& parent, const std::string& label);

  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace segue
