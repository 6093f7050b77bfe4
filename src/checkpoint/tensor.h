// SPDX-License-Identifier: Apache-2.0
//
// TensorSpec: what a tensor is (name, dtype, shape), apart from where its bytes lie.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "segue/status.h"

namespace segue {

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kU8;
  std::vector<std::uint64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

// Size in bytes. InvalidArgument, naming the tensor, when the shape's product overflows, is not
// whole bytes (F4 [3]) or is over limits::kTensorSizeMax.
Result<std::uint64_t> TensorSize(const TensorSpec& spec);

// "BF16 [4, 8]", for messages.
std::string DescribeTensor(const TensorSpec& spec);

// A name from outside as messages show it: in single quotes, control characters as \xNN, long ones
// cut at 200 bytes with their size behind. Keeps a hostile name from forging log lines.
std::string Quoted(std::string_view name);
// Several of them, at most `shown_max`: "'a', 'b' and 3 more".
std::string QuotedNames(std::span<const std::string> names, std::size_t shown_max);

}  // namespace segue
