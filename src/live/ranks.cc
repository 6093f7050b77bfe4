// SPDX-License-Identifier: Apache-2.0
//
// Ranks: one sum a meeting, and the meeting place of ranks that are threads.
#include "live/ranks.h"

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/random.h"

namespace segue {
namespace {

constexpr std::size_t kSumWords = 5;
// Ranks, failures, where a rank stands, and both halves of the sums.
using Words = std::array<std::uint64_t, 3 + 2 * kSumWords>;

void PutValues(const PartValues& values, std::uint64_t* words) {
  words[0] = values.first.lane[0];
  words[1] = values.first.lane[1];
  words[2] = values.second.lane[0];
  words[3] = values.second.lane[1];
  words[4] = values.number;
}

PartValues GetValues(const std::uint64_t* words) {
  return {{{words[0], words[1]}}, {{words[2], words[3]}}, words[4]};
}

// Threads that wait for one another, round after round.
class MeetingPlace {
 public:
  MeetingPlace(unsigned count, std::chrono::milliseconds deadline)
      : count_(count), deadline_(deadline) {}

  Status Add(std::span<std::uint64_t> sums) {
    std::unique_lock lock(mutex_);
    if (came_ == 0) words_.assign(sums.size(), 0);
    if (words_.size() != sums.size()) return Internal("ranks add up different numbers of words");
    for (std::size_t i = 0; i < sums.size(); ++i) words_[i] += sums[i];
    const std::uint64_t round = round_;
    if (++came_ == count_) {
      came_ = 0;
      ++round_;
      result_ = words_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, deadline_, [&] { return round_ != round; })) {
      // Takes its part back, so that a later round begins with nothing.
      for (std::size_t i = 0; i < sums.size(); ++i) words_[i] -= sums[i];
      --came_;
      return Unavailable("another rank did not come in time");
    }
    std::copy(result_.begin(), result_.end(), sums.begin());
    return {};
  }

 private:
  const unsigned count_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned came_ = 0;
  std::uint64_t round_ = 0;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> result_;
};

}  // namespace

Status Ranks::Agree(Meeting meeting, std::uint64_t subject, const Status& mine,
                    RankSums* sums) const {
  if (!sum_) return mine;
  const std::uint64_t place = Mix64(Mix64(static_cast<std::uint64_t>(meeting)) + subject);
  Words words = {1, mine.ok() ? 0u : 1u, place};
  if (sums != nullptr) {
    PutValues(sums->counted, &words[3]);
    PutValues(sums->copies, &words[3 + kSumWords]);
  }
  Status summed = sum_(words);
  if (!mine.ok()) return mine;
  if (!summed.ok()) return Unavailable("the ranks could not agree: " + summed.message());
  if (words[1] != 0) {
    return Unavailable(std::to_string(words[1]) + " of " + std::to_string(words[0]) +
                       " ranks failed; see there");
  }
  if (words[2] != words[0] * place) {
    return Unavailable("the ranks are not at the same step of the same update");
  }
  if (sums != nullptr) {
    sums->counted = GetValues(&words[3]);
    sums->copies = GetValues(&words[3 + kSumWords]);
  }
  return {};
}

std::vector<SumOverRanks> MakeLocalRanks(unsigned count, std::chrono::milliseconds deadline) {
  const auto place = std::make_shared<MeetingPlace>(count, deadline);
  std::vector<SumOverRanks> ranks(count);
  for (SumOverRanks& rank : ranks) {
    rank = [place](std::span<std::uint64_t> sums) { return place->Add(sums); };
  }
  return ranks;
}

}  // namespace segue
