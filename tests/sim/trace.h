// SPDX-License-Identifier: Apache-2.0
//
// Trace: what happened in a simulation, one line an event. Every line goes into a hash, so two runs
// are the same if and only if their hashes are; the last lines are kept to be shown at a failure.
// Nothing that differs between two runs of a seed (paths, real times, addresses) may go into a
// line.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/hash.h"

namespace segue::sim {

class Trace {
 public:
  // `print`: every line also goes to standard output, as it happens.
  explicit Trace(bool print) : print_(print) {}

  void Add(const std::string& line);
  // For whoever reads: printed, not hashed, so it may name paths.
  void Remark(const std::string& line) const;
  std::uint64_t count() const { return count_; }
  const std::deque<std::string>& tail() const { return tail_; }
  // Of all lines so far; to be asked once.
  std::string Finish() { return hasher_.Finish().ToHex().substr(0, 32); }

 private:
  const bool print_;
  std::uint64_t count_ = 0;
  std::deque<std::string> tail_;
  Sha256Hasher hasher_;
};

}  // namespace segue::sim
