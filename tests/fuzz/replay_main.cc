// SPDX-License-Identifier: Apache-2.0
//
// Plain replayer for a fuzz target: runs every file of the named folders (or files) through
// LLVMFuzzerTestOneInput, so that the stored corpus is a regression test without libFuzzer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argument_count, char** arguments) {
  std::vector<std::filesystem::path> inputs;
  for (int i = 1; i < argument_count; ++i) {
    if (!std::filesystem::is_directory(arguments[i])) {
      inputs.emplace_back(arguments[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(arguments[i])) {
      if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
  }
  std::sort(inputs.begin(), inputs.end());
  if (inputs.empty()) {
    std::fprintf(stderr, "no corpus files found: a replay of nothing proves nothing\n");
    return 1;
  }
  for (const auto& input : inputs) {
    std::ifstream file(input, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::fprintf(stderr, "replay %s (%zu bytes)\n", input.filename().c_str(), bytes.size());
    // A heap copy of the exact size, so that AddressSanitizer sees reads past the end.
    const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
  std::fprintf(stderr, "%zu corpus files replayed\n", inputs.size());
  return 0;
}
