// SPDX-License-Identifier: Apache-2.0
//
// Profiles: what an encoder writes (docs/format.md, "Profiles"). Every profile gives the same bits.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace segue {

enum class Profile { kSparseZstd, kSnappyZstd, kLz4Zstd, kZstd };

inline constexpr std::array kProfiles = {Profile::kSparseZstd, Profile::kSnappyZstd,
                                         Profile::kLz4Zstd, Profile::kZstd};

inline constexpr std::string_view ProfileName(Profile profile) {
  switch (profile) {
    case Profile::kSparseZstd: return "sparse-zstd";
    case Profile::kSnappyZstd: return "snappy-zstd";
    case Profile::kLz4Zstd: return "lz4-zstd";
    case Profile::kZstd: return "zstd";
  }
  return "unknown";
}

inline constexpr std::optional<Profile> ProfileFromName(std::string_view name) {
  for (const Profile profile : kProfiles) {
    if (ProfileName(profile) == name) return profile;
  }
  return std::nullopt;
}

}  // namespace segue
