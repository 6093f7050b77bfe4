// SPDX-License-Identifier: Apache-2.0
//
// Watched directory: which checkpoints it holds, in order, and since when each has been as it is.
// Reads only names, sizes and times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "segue/status.h"
#include "sync/environment.h"

namespace segue {

// The last run of digits in a name; nothing for names without, or that begin with '.'.
std::optional<std::uint64_t> StepOfName(const std::string& name);

// What a directory's files look like from outside.
struct FileFacts {
  std::string name;
  std::uint64_t size = 0;
  std::int64_t modified = 0;  // In the file system's own unit.

  bool operator==(const FileFacts&) const = default;
};
// Of the regular files directly in it, by name. NotFound where it is gone.
Result<std::vector<FileFacts>> ReadFileFacts(const std::string& directory);

struct Candidate {
  std::uint64_t step = 0;
  std::string name;
  std::string path;
  bool settled = false;  // Nothing in it has changed for long enough.
  bool quiet = false;    // Nor for so long that its writer may be gone.
  std::vector<FileFacts> files;

  bool IsAfter(const Candidate& other) const {
    return std::tie(step, name) > std::tie(other.step, other.name);
  }
  bool HasFile(const std::string& file) const;
};

class WatchedDirectory {
 public:
  WatchedDirectory(std::string path, Environment::Clock::duration settle, Environment& environment)
      : path_(std::move(path)), settle_(settle), environment_(environment) {}

  // In the order in which they are to be published.
  Result<std::vector<Candidate>> Look();

 private:
  struct Seen {
    std::vector<FileFacts> files;
    Environment::Clock::time_point since;
  };

  const std::string path_;
  const Environment::Clock::duration settle_;
  Environment& environment_;
  std::map<std::string, Seen> seen_;  // By name.
};

}  // namespace segue
