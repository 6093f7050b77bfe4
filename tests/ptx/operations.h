// SPDX-License-Identifier: Apache-2.0
//
// Operations: what each instruction does in each lane, by its name in PTX.
#pragma once

#include <string>

#include "ptx/program.h"

namespace ptx {

// `name` without ".global" and ".uni". Fault for what is not known.
const Operation& FindOperation(const std::string& name);

}  // namespace ptx
