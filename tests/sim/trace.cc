// SPDX-License-Identifier: Apache-2.0
//
// Trace.
#include "sim/trace.h"

#include <cstdio>

namespace segue::sim {
namespace {

constexpr std::size_t kTailLines = 60;

}  // namespace

void Trace::Add(const std::string& line) {
  ++count_;
  hasher_.Add(AsBytes(line));
  hasher_.Add(AsBytes("\n"));
  if (print_) std::printf("%s\n", line.c_str());
  tail_.push_back(line);
  if (tail_.size() > kTailLines) tail_.pop_front();
}

void Trace::Remark(const std::string& line) const {
  if (print_) std::printf("                        %s\n", line.c_str());
}

}  // namespace segue::sim
