// SPDX-License-Identifier: Apache-2.0
//
// An engine in C++ that reads weights which `segue serve --name NAME` keeps in shared memory. Not a
// byte is copied; the receiver writes only between two steps.
//   attached NAME VERSION      computes until a step ran at VERSION
#include <chrono>
#include <cstdio>

#include "model.h"
#include "segue/engine.h"

namespace {

using std::chrono::seconds;

segue::Status Serve(const char* name, std::uint64_t last) {
  auto weights = segue::EngineWeights::Attach(name, seconds(30));
  if (!weights.ok()) return weights.status();
  std::uint64_t told = ~std::uint64_t{0};
  for (;;) {
    const auto step = weights->BeginStep(seconds(30));  // Ends with its scope.
    if (!step.ok()) return step.status();
    std::uint64_t sum = 0;
    for (const segue::EngineTensor& tensor : weights->tensors())
      sum ^= Forward(reinterpret_cast<const std::uint16_t*>(tensor.data), tensor.size / 2);
    const std::uint64_t version = weights->version().version;
    if (version != told)
      std::printf("version %llu: result %016llx\n", static_cast<unsigned long long>(version),
                  static_cast<unsigned long long>(sum));
    told = version;
    if (version >= last) return {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: attached NAME VERSION\n"), 2;
  const segue::Status status = Serve(argv[1], Number(argv[2]));
  if (!status.ok()) std::fprintf(stderr, "attached: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
