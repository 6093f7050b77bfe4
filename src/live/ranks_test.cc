// SPDX-License-Identifier: Apache-2.0
//
// Engines of several ranks: each rank is a thread with a receiver of its own and holds slices,
// transposes and copies of a small model. All take an update or none does, whatever one of them
// meets: wrong bytes, a gate that does not close, another version, an absence.
#include "live/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "segue/view.h"
#include "sync/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using test::PublishOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// One rank's memory and gate.
struct Rank {
  std::byte* Bind(const test::TestTensor& tensor, std::uint64_t size, std::optional<View> view,
                  std::uint32_t copy = 0, std::uint32_t copy_count = 1) {
    buffers.push_back(std::make_unique<ByteVector>(size));
    model.tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                             tensor.spec.shape, buffers.back()->data(), size, std::move(view), copy,
                             copy_count});
    return buffers.back()->data();
  }
  std::vector<ByteVector> bytes() const {
    std::vector<ByteVector> all;
    for (const auto& buffer : buffers) all.push_back(*buffer);
    return all;
  }

  std::vector<std::unique_ptr<ByteVector>> buffers;
  BoundModel model;
  bool gate_refuses = false;
  bool closed = false;
  int closings = 0;
  std::uint64_t generation = 7;
  std::unique_ptr<Receiver> receiver;
};

class RanksTest : public ::testing::Test {
 protected:
  static constexpr unsigned kRanks = 2;

  RanksTest() : ranks_(kRanks) {
    const auto meet = MakeLocalRanks(kRanks, milliseconds(300));
    const auto& tensors = trainer_.tensors();
    for (unsigned r = 0; r < kRanks; ++r) {
      Rank& rank = ranks_[r];
      // Columns of the matrix, transposed; a share of the bytes; copies of the rest.
      const View columns =
          BoxView(std::vector<std::uint64_t>{300, 1000}, std::vector<std::uint64_t>{0, r * 500ull},
                  std::vector<std::uint64_t>{300, 500}, std::vector<std::uint64_t>{2, 600})
              .value();
      rank.Bind(tensors[0], 500 * 600, columns);
      rank.Bind(tensors[1], 35000, View{r * 35000ull, 0, {{35000, 1, 1}}});
      rank.Bind(tensors[2], 4, std::nullopt, r, kRanks);
      if (r == 0) rank.Bind(tensors[3], 0, std::nullopt);
      rank.Bind(tensors[4], 4097 * 8, std::nullopt, r, kRanks);
      rank.model.sum_over_ranks = meet[r];
      rank.model.generation = [&rank] { return rank.generation; };
      rank.model.close_gate = [&rank](milliseconds) {
        if (rank.gate_refuses) return Unavailable("a step takes long");
        rank.closed = true;
        ++rank.closings;
        return Status();
      };
      rank.model.open_gate = [&rank] {
        rank.closed = false;
        return Status();
      };
    }
    Advance(1);
    Load(1);
  }

  void Advance(std::uint64_t seed) {
    trainer_.Step(seed);
    ASSERT_TRUE(Publish(PublishOf(store_, trainer_.Directory(trainer_.version() - 1),
                                  trainer_.Directory(trainer_.version())))
                    .ok());
  }

  // What the engine's own loader does.
  void Load(std::uint64_t version) { Fill(version, ranks_); }
  void Fill(std::uint64_t version, std::vector<Rank>& ranks) const {
    const Checkpoint checkpoint = Checkpoint::Open(trainer_.Directory(version)).value();
    const ByteSpan matrix = checkpoint.TensorBytes(0);
    for (unsigned r = 0; r < kRanks; ++r) {
      std::size_t next = 0;
      ByteVector& columns = *ranks[r].buffers[next++];
      for (std::size_t row = 0; row < 300; ++row) {
        for (std::size_t c = 0; c < 500; ++c) {
          std::memcpy(columns.data() + c * 600 + row * 2,
                      matrix.data() + (row * 1000 + r * 500 + c) * 2, 2);
        }
      }
      std::memcpy(ranks[r].buffers[next++]->data(), checkpoint.TensorBytes(1).data() + r * 35000,
                  35000);
      std::memcpy(ranks[r].buffers[next++]->data(), checkpoint.TensorBytes(2).data(), 4);
      if (r == 0) ++next;
      std::memcpy(ranks[r].buffers[next]->data(), checkpoint.TensorBytes(4).data(), 4097 * 8);
    }
  }
  bool HoldAll(std::uint64_t version) {
    std::vector<std::vector<ByteVector>> now;
    for (const Rank& rank : ranks_) now.push_back(rank.bytes());
    Fill(version, ranks_);
    bool same = true;
    for (unsigned r = 0; r < kRanks; ++r) {
      same = same && ranks_[r].bytes() == now[r];
      for (std::size_t i = 0; i < now[r].size(); ++i) *ranks_[r].buffers[i] = now[r][i];
    }
    return same;
  }

  ReceiverOptions Options() {
    ReceiverOptions options;
    options.store = store_;
    options.checkpoint = trainer_.Directory(0);
    options.staging = directory_.path();
    options.threads = options.background_threads = 1;
    options.gate_deadline = milliseconds(200);
    return options;
  }

  // The same call at every rank, each in a thread.
  template <typename Call>
  std::vector<Status> AtAll(Call call) {
    std::vector<Status> outcomes(kRanks);
    {
      std::vector<std::jthread> threads;
      for (unsigned r = 0; r < kRanks; ++r) {
        threads.emplace_back([&, r] { outcomes[r] = call(ranks_[r], r); });
      }
    }
    return outcomes;
  }
  std::vector<Status> OpenAll() {
    return AtAll([&](Rank& rank, unsigned) {
      rank.receiver.reset();  // What it had bound is free again.
      auto receiver = Receiver::Open(Options(), rank.model);
      if (!receiver.ok()) return receiver.status();
      rank.receiver = std::move(receiver).value();
      return Status();
    });
  }
  std::vector<Status> UpdateAll(std::uint64_t version) {
    return AtAll([&](Rank& rank, unsigned) {
      PrepareRequest request;
      request.session = "to-" + std::to_string(version);
      request.target_version = version;
      return rank.receiver->Update(request).status();
    });
  }
  void ExpectOk(const std::vector<Status>& outcomes) {
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }
  void ExpectAllServe(std::uint64_t version) {
    EXPECT_TRUE(HoldAll(version));
    for (const Rank& rank : ranks_) {
      const ReceiverStatus status = rank.receiver->status();
      EXPECT_EQ(status.version, version);
      EXPECT_TRUE(status.ready) << status.message;
      EXPECT_FALSE(rank.closed);
    }
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::vector<Rank> ranks_;
};

TEST_F(RanksTest, FollowAndRebuildTogether) {
  ExpectOk(OpenAll());
  ExpectAllServe(1);
  Advance(2);
  Advance(3);
  ExpectOk(UpdateAll(3));
  ExpectAllServe(3);
  Advance(4);
  ExpectOk(UpdateAll(4));
  ExpectAllServe(4);
  EXPECT_EQ(ranks_[0].receiver->status().digest, ranks_[1].receiver->status().digest);
  ExpectOk(AtAll([](Rank& rank, unsigned) { return rank.receiver->Rebuild(2); }));
  ExpectAllServe(2);
  EXPECT_EQ(ranks_[0].receiver->Follow(milliseconds(5)).code(), StatusCode::kInvalidArgument);
}

TEST_F(RanksTest, WeightsThatAreNoVersionAreNotBound) {
  (*ranks_[1].buffers[0])[1234] ^= std::byte{8};
  for (const Status& status : OpenAll()) {
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch) << status.ToString();
  }
  (*ranks_[1].buffers[0])[1234] ^= std::byte{8};
  // A copy, which does not count.
  (*ranks_[1].buffers[3])[99] ^= std::byte{8};
  for (const Status& status : OpenAll()) {
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_THAT(status.message(), HasSubstr("copies of a tensor differ"));
  }
}

TEST_F(RanksTest, APartThatNobodyHoldsIsMissed) {
  ranks_[1].model.tensors.erase(ranks_[1].model.tensors.begin() + 1);
  for (const Status& status : OpenAll()) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the ranks hold"));
  }
}

// Base bytes that went wrong at one rank stop all of them before anything is written, and that rank
// until a new receiver has proven them.
TEST_F(RanksTest, WrongBytesAtOneRankStopAll) {
  ExpectOk(OpenAll());
  std::uint64_t version = 1;
  for (const std::size_t buffer : {0, 1, 3}) {
    Advance(++version);
    for (std::byte& byte : *ranks_[1].buffers[buffer]) byte ^= std::byte{0x40};
    const auto before = ranks_[0].bytes();
    const int closings = ranks_[0].closings;
    for (const Status& status : UpdateAll(version)) {
      EXPECT_THAT(status.code(), AnyOf(StatusCode::kCorruption, StatusCode::kUnavailable));
    }
    EXPECT_EQ(ranks_[0].bytes(), before);
    EXPECT_EQ(ranks_[0].closings, closings);
    EXPECT_FALSE(ranks_[1].receiver->status().ready);
    for (std::byte& byte : *ranks_[1].buffers[buffer]) byte ^= std::byte{0x40};
    ExpectOk(OpenAll());
    ExpectAllServe(version);
  }
}

// A rank that cannot rebuild leaves the gates of poisoned weights closed everywhere.
TEST_F(RanksTest, AFailedRebuildOpensNoGateOfPoisonedWeights) {
  ExpectOk(OpenAll());
  Advance(2);
  ExpectOk(AtAll([](Rank& rank, unsigned) {
    PrepareRequest request;
    request.session = "s";
    SEGUE_RETURN_IF_ERROR(rank.receiver->Prepare(request));
    return rank.receiver->WaitPrepared();
  }));
  // Between preflight and apply, by another hand.
  for (Rank& rank : ranks_) {
    for (std::byte& byte : *rank.buffers[0]) byte ^= std::byte{0x40};
  }
  for (const Status& status :
       AtAll([](Rank&rank, unsigned) { return rank.receiver->Apply("s"); })) {
    EXPECT_EQ(status.code(), StatusCode::kTainted) << status.ToString();
  }
  ranks_[1].gate_refuses = true;
  for (const Status& status :
       AtAll([](Rank&rank, unsigned) { return rank.receiver->Rebuild({}); })) {
    EXPECT_FALSE(status.ok());
  }
  EXPECT_TRUE(ranks_[0].closed) << "an engine may read poisoned weights";
  ranks_[1].gate_refuses = false;
  ExpectOk(AtAll([](Rank& rank, unsigned) { return rank.receiver->Rebuild({}); }));
  ExpectAllServe(2);
}

TEST_F(RanksTest, AGateThatDoesNotCloseOpensTheOthers) {
  ExpectOk(OpenAll());
  Advance(2);
  ranks_[1].gate_refuses = true;
  for (const Status& status : UpdateAll(2)) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  }
  EXPECT_TRUE(HoldAll(1));
  EXPECT_FALSE(ranks_[0].closed);
  ranks_[1].gate_refuses = false;
  // Still prepared everywhere.
  ExpectOk(AtAll([](Rank& rank, unsigned) { return rank.receiver->Apply("to-2"); }));
  ExpectOk(AtAll([](Rank& rank, unsigned) { return rank.receiver->Resume("to-2"); }));
  ExpectAllServe(2);
}

TEST_F(RanksTest, AnotherVersionOrAnAbsenceStopsAll) {
  ExpectOk(OpenAll());
  Advance(2);
  Advance(3);
  for (const Status& status : AtAll([](Rank&rank, unsigned r) {
         PrepareRequest request;
         request.session = "s";
         request.target_version = 2 + r;
         return rank.receiver->Update(request).status();
       })) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("not at the same step"));
  }
  PrepareRequest alone;
  alone.session = "alone";
  const Status status = ranks_[0].receiver->Update(alone).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("did not come in time"));
  ExpectAllServe(1);
  ExpectOk(UpdateAll(3));
  ExpectAllServe(3);
}

// Buffers that the engine has given up are neither read nor written (case C1).
TEST_F(RanksTest, ReboundBuffersAreRefused) {
  ExpectOk(OpenAll());
  Advance(2);
  ++ranks_[1].generation;
  const auto outcomes = UpdateAll(2);
  EXPECT_EQ(outcomes[0].code(), StatusCode::kUnavailable);
  EXPECT_EQ(outcomes[1].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(outcomes[1].message(), HasSubstr("generation 7 was bound, now it is 8"));
  EXPECT_TRUE(HoldAll(1));
  EXPECT_FALSE(ranks_[1].receiver->status().ready);
  EXPECT_TRUE(ranks_[0].receiver->status().ready);
  // Between prepare and apply.
  --ranks_[1].generation;
  ExpectOk(AtAll([](Rank& rank, unsigned) {
    PrepareRequest request;
    request.session = "late";
    const Status begun = rank.receiver->Prepare(request);
    return begun.ok() ? rank.receiver->WaitPrepared() : begun;
  }));
  ++ranks_[1].generation;
  for (const Status& status :
       AtAll([](Rank&rank, unsigned) { return rank.receiver->Apply("late"); })) {
    EXPECT_FALSE(status.ok());
  }
  EXPECT_TRUE(HoldAll(1));
  EXPECT_FALSE(ranks_[0].closed);
  EXPECT_FALSE(ranks_[1].closed);
}

// A wrong byte that appears in the pause poisons every rank: none resumes alone.
TEST_F(RanksTest, AFaultInThePausePoisonsAll) {
  ExpectOk(OpenAll());
  Advance(2);
  ranks_[1].model.close_gate = nullptr;  // The receiver has its own copy.
  ExpectOk(AtAll([](Rank& rank, unsigned) {
    PrepareRequest request;
    request.session = "s";
    const Status begun = rank.receiver->Prepare(request);
    return begun.ok() ? rank.receiver->WaitPrepared() : begun;
  }));
  for (std::byte& byte : *ranks_[1].buffers[0]) byte ^= std::byte{0x40};
  for (const Status& status :
       AtAll([](Rank&rank, unsigned) { return rank.receiver->Apply("s"); })) {
    EXPECT_EQ(status.code(), StatusCode::kTainted) << status.ToString();
  }
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(rank.receiver->status().state, ReceiverState::kPoisoned);
    EXPECT_TRUE(rank.closed);
  }
  ExpectOk(AtAll([](Rank& rank, unsigned) { return rank.receiver->Rebuild({}); }));
  ExpectAllServe(2);
}

TEST(LocalRanks, SumsAndAbsences) {
  const auto ranks = MakeLocalRanks(2, milliseconds(50));
  std::uint64_t alone[] = {1};
  EXPECT_EQ(ranks[0](alone).code(), StatusCode::kUnavailable);
  std::uint64_t a[] = {1, 2};
  std::uint64_t b[] = {10, ~std::uint64_t{0}};
  {
    const std::jthread other([&] { EXPECT_TRUE(ranks[1](b).ok()); });
    EXPECT_TRUE(ranks[0](a).ok());
  }
  EXPECT_THAT(a, ::testing::ElementsAre(11, 1));
  EXPECT_THAT(b, ::testing::ElementsAre(11, 1));
}

}  // namespace
}  // namespace segue
