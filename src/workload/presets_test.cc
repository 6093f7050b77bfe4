// SPDX-License-Identifier: Apache-2.0
//
// The table of presets is consistent, and every preset meets the density in its name, in memory as
// in a model. Seeds are fixed, so a test that passes once passes always.
#include "workload/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "workload/simulation.h"

namespace segue::workload {
namespace {

constexpr double kTolerance = 0.15;

Status Discard(const Piece&) { return {}; }

TEST(Presets, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const PresetInfo& info : Presets()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    const Preset preset = FindPreset(info.name).value();
    EXPECT_EQ(Info(preset.format).name, info.format) << info.name;
    EXPECT_GE(info.density, 0.0);
    EXPECT_LE(info.density, 1.0);
  }
  EXPECT_FALSE(names.contains("trace"));
}

TEST(Presets, UnknownNameIsRefusedWithTheKnownOnes) {
  const Status status = FindPreset("bf16-7").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("'bf16-7'"));
  EXPECT_THAT(status.message(), testing::HasSubstr("humans-proxy"));
}

class PresetDensity : public testing::TestWithParam<std::string_view> {};

// Enough for about 400 changes at the lowest density: a deviation of 5 %.
constexpr std::size_t kElements = 2 << 20;

std::size_t SizeFor(const Preset& preset) { return kElements * Info(preset.format).bits / 8; }

TEST_P(PresetDensity, OfAPair) {
  const Preset preset = FindPreset(GetParam()).value();
  ByteVector base(SizeFor(preset));
  ByteVector target(base.size());
  const auto changed = static_cast<double>(GeneratePair(GetParam(), 1, 2, base, target).value());
  const double wanted = preset.info.density;
  EXPECT_NEAR(changed / kElements, wanted, kTolerance * wanted);
}

TEST_P(PresetDensity, OfAModel) {
  const Preset preset = FindPreset(GetParam()).value();
  std::vector<ModelTensor> tensors =
      MakeModel({SizeFor(preset), preset.format, preset.has_experts, 1});
  Simulation simulation = Simulation::Make(preset, std::move(tensors), 1, 1, 2).value();
  ASSERT_TRUE(simulation.Run(0, 1, 2, Discard).ok());
  const StepCounts& counts = simulation.counts()[0];
  const double wanted = preset.info.density;
  // The proxy rounds up to one flip a tensor, which a model of small tensors shows.
  const double tolerance = preset.mechanism == Mechanism::kProxy ? 0.3 : kTolerance;
  EXPECT_NEAR(static_cast<double>(counts.changed) / static_cast<double>(counts.elements), wanted,
              tolerance * wanted);
}

std::vector<std::string_view> NamesWithDensity() {
  std::vector<std::string_view> names;
  for (const PresetInfo& info : Presets()) {
    if (info.name != "one-bit") names.push_back(info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, PresetDensity, testing::ValuesIn(NamesWithDensity()),
                         [](const auto& test) {
                           std::string name(test.param);
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace segue::workload
