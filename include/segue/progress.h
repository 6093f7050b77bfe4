// SPDX-License-Identifier: Apache-2.0
//
// Progress: how long operations tell their caller where they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace segue {

// Called from one thread at a time: the stage's name ("diff+encode", "fetch", ...), bytes done and
// bytes in all (0 where not known). May be empty.
using Progress =
    std::function<void(std::string_view stage, std::uint64_t done, std::uint64_t total)>;

}  // namespace segue
