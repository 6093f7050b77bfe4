// SPDX-License-Identifier: Apache-2.0
//
// Every maximum has its name here, with the reason for its value. Numbers from outside are compared
// with these before anything is allocated; docs/format.md repeats those that bind other writers.
#pragma once

#include <cstddef>
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
// Axes of a view: a tensor's rank and as many cuts of its dimensions are far below it.
inline constexpr std::size_t kViewAxisCountMax = 16;
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
// A PEM file of one key, and keys that a reader tries on each object.
inline constexpr std::uint64_t kKeyFileSizeMax = 64u << 10;
inline constexpr std::size_t kPublicKeyCountMax = 16;
// Marks of pruned numbers that a lineage keeps: a put may be under way that long.
inline constexpr std::uint64_t kGoneMarksMax = 1000;
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
// What a step of an engine's control may still take once the process is to end.
inline constexpr int kEngineStopMsMax = 2000;

// Disk deltas (docs/format.md, section 10). Versions have six digits there, shards five.
inline constexpr std::uint64_t kDiskDeltaVersionMax = 999'999;
inline constexpr std::uint64_t kDiskDeltaShardCountMax = 99'999;
// Versions on one way, all opened before the first is read; and the diffs in them, 64 bytes each.
inline constexpr std::uint64_t kDiskDeltaChainLengthMax = 10'000;
inline constexpr std::uint64_t kDiskDeltaDiffCountMax = 1ull << 26;
// What a frame may have over what Zstd needs at most: writers that flush now and then.
inline constexpr std::uint64_t kDiskDeltaFrameSlack = 64u << 10;
// The state file of a receiver of disk deltas: one number.
inline constexpr std::uint64_t kDiskStateSizeMax = 64u << 10;
// How long a pull waits for another one of the same checkpoint.
inline constexpr int kPullLockSecondsMax = 600;

// HTTP: what a client may send, and how long it may take over it.
inline constexpr std::uint64_t kHttpBodySizeMax = 1ull << 20;
inline constexpr int kHttpReadSecondsMax = 10;
// More than any fleet's tools open at once, few enough for the usual 1024 open files.
inline constexpr unsigned kHttpConnectionsMax = 256;
inline constexpr int kHttpKeepAliveSecondsMax = 5;
inline constexpr unsigned kHttpKeepAliveMax = 1000;
// Of one endpoint, requests that last as long as an update or a pull: repeats wait for it.
inline constexpr unsigned kHttpLongRequestsMax = 32;

// Stores over a network, as clients. A request that makes no progress ends: it may not connect for
// longer than this, nor be slower than the rate for longer than the stall, nor last longer at all.
inline constexpr int kStoreConnectSecondsMax = 10;
inline constexpr int kStoreStallSecondsMax = 30;
inline constexpr std::uint64_t kStoreRateMin = 1024;  // Bytes a second.
inline constexpr int kStoreRequestSecondsMax = 3600;
// Tries in a row that bring nothing, with waits that double from the first; and resumes in all.
inline constexpr int kStoreTryCountMax = 5;
inline constexpr int kStoreRetryWaitMs = 100;
inline constexpr int kStoreRetryWaitMsMax = 10'000;  // Also where a server asks for a longer one.
inline constexpr int kStoreResumeCountMax = 64;
// Bytes read and dropped to reach a range, where a server ignores ranges.
inline constexpr std::uint64_t kStoreSkipSizeMax = 64ull << 20;
inline constexpr std::uint64_t kHttpHeaderSizeMax = 64ull << 10;  // Requests too.
// Of the body of a refusal this much is read, for its message.
inline constexpr std::uint64_t kHttpErrorSizeMax = 16ull << 10;
// One listing: its text, and the names in it.
inline constexpr std::uint64_t kStoreListSizeMax = 32ull << 20;
inline constexpr std::uint64_t kStoreEntryCountMax = 1'000'000;
// An object on its way to the network is kept in memory up to this size, then in a file.
inline constexpr std::uint64_t kSpoolMemoryMax = 1ull << 20;
// Beyond any payload; a declared size above it is refused before a byte is read.
inline constexpr std::uint64_t kStoreObjectSizeMax = 1ull << 46;

// Stores over HTTP, as servers.
inline constexpr unsigned kStoreConnectionsMax = 128;
inline constexpr int kStoreKeepAliveSecondsMax = 5;
// A client slower than kStoreRateMin on average is cut off after this time.
inline constexpr int kStoreGraceSecondsMax = 30;

// S3: objects up to kS3PartSize go in one request, larger ones in parts of that size, or larger
// where 10,000 of them (the protocol's maximum) would not do.
inline constexpr std::uint64_t kS3PartSize = 16ull << 20;
inline constexpr std::uint64_t kS3PartCountMax = 10'000;
// Pages of one listing: kStoreEntryCountMax names where each page has half of what was asked for.
inline constexpr int kS3PageCountMax = 2'000;
// Answers in XML: a page of 1000 names of 1024 bytes, several times over.
inline constexpr std::uint64_t kXmlSizeMax = 8ull << 20;
inline constexpr unsigned kXmlDepthMax = 16;
inline constexpr unsigned kXmlElementCountMax = 100'000;

// Relays: how far a request may be passed on, how long a relay may take before the next source is
// asked, and what one keeps unless told otherwise.
inline constexpr unsigned kRelayHopsMax = 8;
inline constexpr int kRelayWaitSecondsMax = 10;
// A relay that has not told an object's size in time, or brings it slower than the rate on average
// for longer than the grace, is left for the next source.
inline constexpr int kRelayAnswerSecondsMax = 60;
inline constexpr std::uint64_t kRelayRateMin = 1ull << 20;  // Bytes a second.
inline constexpr int kRelayGraceSecondsMax = 10;
inline constexpr std::uint64_t kRelaySizeDefault = 16ull << 30;
inline constexpr std::uint64_t kRelayCountDefault = 1024;

}  // namespace segue::limits
