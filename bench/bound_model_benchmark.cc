// SPDX-License-Identifier: Apache-2.0
//
// A step of a trainer and of a receiver with bound tensors in one process: 1 GiB of BF16 in 32
// tensors, of which every 1000th element changes. What bench/python_overhead.py holds the same work
// in Python against.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "checkpoint/testing.h"
#include "segue/publisher.h"
#include "segue/receiver.h"
#include "segue/step_gate.h"

namespace segue {
namespace {

constexpr std::size_t kTensorCount = 32;
constexpr std::size_t kElementCount = 16u << 20;
constexpr std::size_t kEvery = 1000;
constexpr std::size_t kSize = kElementCount * sizeof(std::uint16_t);

using Tensor = std::vector<std::uint16_t>;

class Loop {
 public:
  Loop() : trained_(kTensorCount, Tensor(kElementCount)), live_(trained_) {
    const std::string store = directory_.File("store");
    PublisherOptions options;
    options.store = store;
    options.retain = 4;
    publisher_ = Publisher::Open(options, Sources()).value();
    BoundModel model;
    for (std::size_t i = 0; i < kTensorCount; ++i) {
      model.tensors.push_back(
          {Name(i), "BF16", {kElementCount}, reinterpret_cast<std::byte*>(live_[i].data()), kSize});
    }
    gate_.Guard(model);
    ReceiverOptions receiver;
    receiver.store = store;
    receiver_ = Receiver::Open(receiver, std::move(model)).value();
  }

  void Train() {
    ++step_;
    for (Tensor& tensor : trained_) {
      for (std::size_t i = step_ % kEvery; i < kElementCount; i += kEvery) tensor[i] ^= 1;
    }
  }
  void Publish() { SEGUE_CHECK(publisher_->Publish(Sources()).ok()); }
  void Update() {
    PrepareRequest request;
    request.session = std::to_string(step_);
    SEGUE_CHECK(receiver_->Update(request).ok());
  }

 private:
  static std::string Name(std::size_t i) { return "layer." + std::to_string(i); }
  std::vector<SourceTensor> Sources() const {
    std::vector<SourceTensor> sources;
    for (std::size_t i = 0; i < kTensorCount; ++i) {
      sources.push_back({Name(i),
                         "BF16",
                         {kElementCount},
                         reinterpret_cast<const std::byte*>(trained_[i].data()),
                         kSize});
    }
    return sources;
  }

  const test::TemporaryDirectory directory_;
  std::size_t step_ = 0;
  std::vector<Tensor> trained_;
  std::vector<Tensor> live_;
  StepGate gate_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Receiver> receiver_;
};

Loop& TheLoop() {
  static Loop loop;
  return loop;
}

void BM_Publish(benchmark::State& state) {
  Loop& loop = TheLoop();
  for (auto _ : state) {
    state.PauseTiming();
    loop.Train();
    state.ResumeTiming();
    loop.Publish();
    state.PauseTiming();
    loop.Update();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_Publish)->Iterations(1)->Repetitions(15)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_Update(benchmark::State& state) {
  Loop& loop = TheLoop();
  for (auto _ : state) {
    state.PauseTiming();
    loop.Train();
    loop.Publish();
    state.ResumeTiming();
    loop.Update();
  }
}
BENCHMARK(BM_Update)->Iterations(1)->Repetitions(15)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace segue
