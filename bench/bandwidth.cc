// SPDX-License-Identifier: Apache-2.0
//
// Loops that a compiler turns into vector code; threads take pieces of 4 MiB.
#include "bench/bandwidth.h"

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/threads.h"

namespace segue::bench {
namespace {

constexpr std::size_t kPieceSize = 4ull << 20;
constexpr std::size_t kCompareSize = 4096;
constexpr std::size_t kLineWords = 8;

template <typename Job>
void ForEachPiece(std::size_t size, unsigned threads, Job job) {
  const Status status =
      ParallelFor(DivideUp(size, kPieceSize), threads, [&](std::size_t i, unsigned) {
        job(i * kPieceSize, std::min(kPieceSize, size - i * kPieceSize));
        return Status();
      });
  SEGUE_CHECK(status.ok());
}

std::uint64_t SumWords(const std::byte* bytes, std::size_t size) {
  std::uint64_t sums[4 * kLineWords] = {};
  for (std::size_t offset = 0; offset + sizeof(sums) <= size; offset += sizeof(sums)) {
    std::uint64_t words[4 * kLineWords];
    std::memcpy(words, bytes + offset, sizeof(words));
    for (std::size_t i = 0; i < 4 * kLineWords; ++i) sums[i] += words[i];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

bool Differ(const std::byte* a, const std::byte* b, std::size_t size) {
  std::uint64_t bits[kLineWords] = {};
  for (std::size_t offset = 0; offset < size; offset += sizeof(bits)) {
    std::uint64_t left[kLineWords];
    std::uint64_t right[kLineWords];
    std::memcpy(left, a + offset, sizeof(left));
    std::memcpy(right, b + offset, sizeof(right));
    for (std::size_t i = 0; i < kLineWords; ++i) bits[i] |= left[i] ^ right[i];
  }
  std::uint64_t any = 0;
  for (const std::uint64_t word : bits) any |= word;
  return any != 0;
}

}  // namespace

std::uint64_t ReadAll(ByteSpan bytes, unsigned threads) {
  std::atomic<std::uint64_t> total{0};
  ForEachPiece(bytes.size(), threads, [&](std::size_t offset, std::size_t size) {
    total += SumWords(bytes.data() + offset, size);
  });
  return total;
}

void CopyAll(ByteSpan source, MutableByteSpan target, unsigned threads) {
  ForEachPiece(source.size(), threads, [&](std::size_t offset, std::size_t size) {
    std::memcpy(target.data() + offset, source.data() + offset, size);
  });
}

std::uint64_t CompareAll(ByteSpan a, ByteSpan b, unsigned threads) {
  std::atomic<std::uint64_t> total{0};
  ForEachPiece(a.size(), threads, [&](std::size_t offset, std::size_t size) {
    std::uint64_t count = 0;
    for (std::size_t i = offset; i < offset + size; i += kCompareSize) {
      count += Differ(a.data() + i, b.data() + i, std::min(kCompareSize, offset + size - i));
    }
    total += count;
  });
  return total;
}

}  // namespace segue::bench
