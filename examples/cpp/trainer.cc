// SPDX-License-Identifier: Apache-2.0
//
// A trainer in C++: changes its weights, and makes each step a version that engines can take.
//   trainer STORE VERSIONS
#include <cstdio>
#include <vector>

#include "model.h"
#include "segue/publisher.h"

namespace {

// Where the trainer's tensors lie; their bytes are read while Publish() runs.
std::vector<segue::SourceTensor> Sources(Model& model) {
  std::vector<segue::SourceTensor> sources;
  for (auto& [name, tensor] : model)
    sources.push_back({.name = name,
                       .dtype = "BF16",
                       .shape = tensor.shape,
                       .data = tensor.bytes(),
                       .size = tensor.size()});
  return sources;
}

// An optimizer step in BF16 moves few weights, most of them by one unit in the last place.
void TrainStep(Model& model, std::uint64_t& random) {
  for (auto& [name, tensor] : model)
    for (int i = 0; i < 500; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's generator, MMIX.
      ++tensor.values[(random >> 32) % tensor.values.size()];
    }
}

segue::Status Train(const char* store, std::uint64_t versions) {
  Model model = InitialModel();
  std::unique_ptr<segue::Publisher> publisher;
  SEGUE_ASSIGN_OR_RETURN(publisher,
                         segue::Publisher::Open({.store = store, .retain = 20}, Sources(model)));
  std::uint64_t random = 7;
  for (std::uint64_t step = 0; step < versions; ++step) {
    TrainStep(model, random);
    segue::PublishReport report;
    SEGUE_ASSIGN_OR_RETURN(report, publisher->Publish(Sources(model)));
    std::printf("version %llu: %llu elements changed, %llu bytes\n",
                static_cast<unsigned long long>(report.target_version),
                static_cast<unsigned long long>(report.changed_elements),
                static_cast<unsigned long long>(report.payload_bytes));
  }
  std::printf("result %016llx\n", static_cast<unsigned long long>(Forward(model)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: trainer STORE VERSIONS\n"), 2;
  const segue::Status status = Train(argv[1], Number(argv[2]));
  if (!status.ok()) std::fprintf(stderr, "trainer: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
