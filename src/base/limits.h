// SPDX-License-Identifier: Apache-2.0
//
// Every maximum has its name here, with the reason for its value. Numbers from outside are compared
// with these before anything is allocated; docs/format.md repeats those that bind other writers.
#pragma once

#include <cstdint>

namespace segue::limits {

// Safetensors header, as the reference reader allows.
inline constexpr std::uint64_t kSafetensorsHeaderSizeMax = 100'000'000;
// Index and other JSON files that we read whole (a 150,000-tensor index is about 20 MB).
inline constexpr std::uint64_t kIndexSizeMax = 256ull << 20;
// Manifests are a few kilobytes, and 250 bytes more for each owner of up to kOwnerCountMax.
inline constexpr std::uint64_t kManifestSizeMax = 32ull << 20;
inline constexpr std::uint64_t kPlanSizeMax = 256ull << 20;
inline constexpr std::uint64_t kLayoutSizeMax = 1ull << 30;

inline constexpr std::uint64_t kTensorCountMax = 4'000'000;
inline constexpr std::uint64_t kTensorNameSizeMax = 4096;
inline constexpr std::uint64_t kTensorRankMax = 32;
inline constexpr std::uint64_t kTensorSizeMax = 1ull << 46;
inline constexpr std::uint64_t kShardCountMax = 100'000;
inline constexpr std::uint64_t kShardNameSizeMax = 255;
// Tensors of one shard that a publisher of buffers lays out: headers stay within their limit.
inline constexpr std::uint64_t kGeneratedShardTensorsMax = 100'000;

// Powers of two. Below 4 KiB a digest block would not fit, above 16 MiB the codecs' buffers grow.
inline constexpr std::uint64_t kChunkSizeMin = 4096;
inline constexpr std::uint64_t kChunkSizeDefault = 1ull << 20;
inline constexpr std::uint64_t kChunkSizeMax = 16ull << 20;
inline constexpr std::uint64_t kChunkCountMax = 1ull << 32;

// Owners (trainer ranks) of one version.
inline constexpr std::uint64_t kOwnerCountMax = 65'536;
inline constexpr std::uint64_t kLineageNameSizeMax = 128;
// Versions are decimal numbers of up to 10 digits, so that names sort.
inline constexpr std::uint64_t kVersionMax = 9'999'999'999;
// Steps that one combined apply may join.
inline constexpr std::uint64_t kChainLengthMax = 100'000;

// Outer Zstd frames: the window that an encoder may use and a decoder must allow, as a power of 2.
inline constexpr int kZstdWindowLogMax = 23;
inline constexpr unsigned kThreadCountMax = 1024;

// One checkpoint of `segue generate`: beyond any model, and its list of tensors fits into memory.
inline constexpr std::uint64_t kGenerateSizeMax = 1ull << 44;

// Objects of a store in one file.
inline constexpr std::uint64_t kArchiveEntryCountMax = 1'000'000;

// Named earlier versions that a lineage keeps a delta against; each is renewed with every version.
inline constexpr std::uint64_t kAnchorCountMax = 64;

// What a client of engines waits for and takes from one of them.
inline constexpr int kEngineConnectSecondsMax = 2;
inline constexpr int kEngineReadSecondsMax = 5;
inline constexpr std::uint64_t kEngineAnswerSizeMax = 4ull << 20;
inline constexpr std::uint64_t kFleetEnginesMax = 4096;

// HTTP: what a client may send, and how long it may take over it.
inline constexpr std::uint64_t kHttpBodySizeMax = 1ull << 20;
inline constexpr int kHttpReadSecondsMax = 10;
inline constexpr unsigned kHttpConnectionsMax = 64;
inline constexpr unsigned kHttpKeepAliveMax = 1000;

}  // namespace segue::limits
