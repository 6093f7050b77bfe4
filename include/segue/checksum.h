// SPDX-License-Identifier: Apache-2.0
//
// Checksum: 128 bits over bytes (XXH3), for whoever moves tensors between processes and wants to
// know that they came as they went. It guards against faults, not forgery.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace segue {

using Checksum = std::array<std::byte, 16>;

// At memory speed, on the calling thread.
Checksum ChecksumOf(std::span<const std::byte> bytes);

}  // namespace segue
