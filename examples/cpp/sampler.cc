// SPDX-License-Identifier: Apache-2.0
//
// A sampler in C++ with weights of its own: one thread computes forward steps without end, while a
// receiver takes each version that the trainer publishes and writes it into the same memory.
//   sampler STORE VERSIONS
#include <chrono>
#include <cstdio>
#include <thread>

#include "model.h"
#include "segue/receiver.h"
#include "segue/step_gate.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Tells the receiver where each tensor lies; the gate keeps it out while a step reads them.
segue::BoundModel Bind(Model& weights, segue::StepGate& gate) {
  segue::BoundModel model;
  for (auto& [name, tensor] : weights)
    model.tensors.push_back({.name = name,
                             .dtype = "BF16",
                             .shape = tensor.shape,
                             .data = tensor.bytes(),
                             .size = tensor.size()});
  gate.Guard(model);
  return model;
}

// Until the trainer has published, the store is not found, or is being made.
bool ComesLater(segue::StatusCode code) {
  return code == segue::StatusCode::kNotFound || code == segue::StatusCode::kUnavailable;
}

segue::Result<std::unique_ptr<segue::Receiver>> OpenReceiver(const char* store, Model& weights,
                                                             segue::StepGate& gate) {
  for (;;) {
    auto receiver = segue::Receiver::Open({.store = store}, Bind(weights, gate));
    if (!ComesLater(receiver.status().code())) return receiver;
    std::this_thread::sleep_for(milliseconds(100));
  }
}

// Takes versions as they come until `last` is held, telling each.
segue::Status TakeVersions(segue::Receiver& receiver, std::uint64_t last) {
  SEGUE_RETURN_IF_ERROR(receiver.Follow(milliseconds(20)));
  std::uint64_t told = 0;
  for (;;) {
    const segue::ReceiverStatus status = receiver.status();
    if (status.failure != segue::StatusCode::kOk) return {status.failure, status.message};
    if (status.version != told)
      std::printf("version %llu: pause %.2f ms\n", static_cast<unsigned long long>(status.version),
                  status.last.pause_s * 1e3);
    told = status.version;
    if (status.ready && told >= last) return {};
    std::this_thread::sleep_for(milliseconds(5));
  }
}

segue::Status Sample(const char* store, std::uint64_t last) {
  Model weights = InitialModel();
  segue::StepGate gate;
  std::unique_ptr<segue::Receiver> receiver;
  SEGUE_ASSIGN_OR_RETURN(receiver, OpenReceiver(store, weights, gate));
  std::uint64_t steps = 0;
  std::jthread computing([&](std::stop_token stop) {
    [[maybe_unused]] volatile std::uint64_t result = 0;
    for (; !stop.stop_requested(); ++steps) {
      if (!gate.Enter(seconds(30)).ok()) return;
      result = Forward(weights);
      gate.Leave();
    }
  });
  const segue::Status taken = TakeVersions(*receiver, last);
  computing.request_stop();
  computing.join();
  SEGUE_RETURN_IF_ERROR(taken);
  std::printf("%llu forward steps meanwhile\nresult %016llx\n",
              static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(Forward(weights)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: sampler STORE VERSIONS\n"), 2;
  const segue::Status status = Sample(argv[1], Number(argv[2]));
  if (!status.ok()) std::fprintf(stderr, "sampler: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
