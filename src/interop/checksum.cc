// SPDX-License-Identifier: Apache-2.0
//
// segue/checksum.h, by what disk deltas are checked with.
#include "segue/checksum.h"

#include <algorithm>

#include "interop/tensor_checksum.h"

namespace segue {

Checksum ChecksumOf(std::span<const std::byte> bytes) {
  const TensorChecksum whole = HashTensor(ChecksumKind::kXxh3, bytes);
  Checksum checksum;
  std::copy_n(whole.bytes.begin(), checksum.size(), checksum.begin());
  return checksum;
}

}  // namespace segue
