// SPDX-License-Identifier: Apache-2.0
//
// Tensors at the codecs' limits of 2 and 4 GiB (case F7). Goal: no size or offset is cut to 32
// bits. Method: tensors of zeros in address space alone, with changes at their first and last byte
// and on both sides of every border that a codec or an integer has. Every profile encodes, stages
// and applies the chunks around the changes; one whole pass of the encoder and of the digest runs
// over 4 GiB and 1 byte.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

// Zero pages that exist only where they are written.
class ZeroBytes {
 public:
  explicit ZeroBytes(std::uint64_t size) : size_(size) {
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SEGUE_CHECK(data != MAP_FAILED);
    data_ = static_cast<std::byte*>(data);
    // Reads then share one page of zeros.
    (void)::madvise(data, size, MADV_NOHUGEPAGE);
  }
  ~ZeroBytes() { ::munmap(data_, size_); }
  ZeroBytes(const ZeroBytes&) = delete;
  ZeroBytes& operator=(const ZeroBytes&) = delete;

  std::byte& operator[](std::uint64_t i) { return data_[i]; }
  ModelView view() const { return ModelView({data_}); }
  MutableModelView live() { return MutableModelView({data_}); }

 private:
  std::byte* data_;
  std::uint64_t size_;
};

constexpr std::uint64_t kChunk = 1 << 20;
constexpr std::uint64_t kLz4Limit = 2113929216;

std::vector<std::uint64_t> ChangedBytes(std::uint64_t size) {
  std::vector<std::uint64_t> places;
  for (const std::uint64_t border : {std::uint64_t{0}, kChunk, std::uint64_t{1} << 31, kLz4Limit,
                                     std::uint64_t{1} << 32, size}) {
    if (border > 0 && border <= size) places.push_back(border - 1);
    if (border < size) places.push_back(border);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

void ExpectTarget(const Plan& plan, const StagedDelta& staged, ZeroBytes& live,
                  const std::vector<std::uint64_t>& places, std::uint64_t size) {
  const auto device = MakeHostDevice(1);
  Applier applier(plan, staged, live.live(), *device);
  const Status preflight = applier.Preflight();
  ASSERT_TRUE(preflight.ok()) << preflight.ToString();
  ASSERT_TRUE(applier.Apply().ok());
  for (const std::uint64_t place : places) {
    ASSERT_EQ(live[place], std::byte{0x81}) << place;
    if (place + 2 < size && live[place + 1] != std::byte{0x81}) {
      ASSERT_EQ(live[place + 1], std::byte{0});
    }
    live[place] = std::byte{0};
  }
}

// case F7
TEST(LargeTensorTest, EveryProfileAtEveryBorder) {
  for (const std::uint64_t size :
       {std::uint64_t{1} << 31, kLz4Limit + 1, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32,
        (std::uint64_t{1} << 32) + 1}) {
    const Plan plan = test::OneTensorPlan(Dtype::kU8, size, kChunk);
    const ZeroBytes base(size);
    ZeroBytes target(size);
    ZeroBytes live(size);
    const auto places = ChangedBytes(size);
    for (const std::uint64_t place : places) target[place] = std::byte{0x81};
    for (const Profile profile : kProfiles) {
      SCOPED_TRACE(std::string(ProfileName(profile)) + " " + std::to_string(size));
      ChunkEncoder encoder(profile, kChunk);
      std::uint64_t last = UINT64_MAX;
      const ByteVector payload = test::WritePayload([&](GroupBuilder& group) {
        for (const std::uint64_t place : places) {
          const std::uint64_t chunk = place / kChunk;
          if (chunk == last) continue;
          last = chunk;
          const ChunkPlace at = plan.Chunk(chunk);
          (void)encoder.Encode(chunk, at, base.view().Chunk(at), target.view().Chunk(at), group);
        }
      });
      const StagedDelta staged = test::Stage(plan, payload);
      EXPECT_EQ(staged.changed_elements(), places.size());
      ASSERT_NO_FATAL_FAILURE(ExpectTarget(plan, staged, live, places, size));
    }
  }
}

// case F7
TEST(LargeTensorTest, OneWholePassOver4GiBAndAByte) {
  const std::uint64_t size = (std::uint64_t{1} << 32) + 1;
  const Plan plan = test::OneTensorPlan(Dtype::kU8, size, kChunk);
  EXPECT_EQ(plan.chunk_count(), 4097u);
  const ZeroBytes base(size);
  ZeroBytes target(size);
  ZeroBytes live(size);
  const auto places = ChangedBytes(size);
  for (const std::uint64_t place : places) target[place] = std::byte{0x81};
  ByteVector payload;
  const auto report = EncodeDelta(plan, base.view(), target.view(), {}, [&](ByteSpan bytes) {
    AppendBytes(payload, bytes);
    return Status();
  });
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->base_digest, Digest());
  EXPECT_EQ(report->target_digest, report->payload.difference);
  EXPECT_EQ(report->payload.changed_elements, places.size());
  ExpectTarget(plan, test::Stage(plan, payload), live, places, size);
}

}  // namespace
}  // namespace segue
