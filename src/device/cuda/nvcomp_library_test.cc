// SPDX-License-Identifier: Apache-2.0
//
// Loading nvCOMP: the fake one of several versions, and what is none. The real one, which needs no
// GPU for this, where SEGUE_NVCOMP names it.
#include "device/cuda/nvcomp_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/cuda/nvcomp_decoder.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;

TEST(NvcompLibraryTest, TakesTheVersionsThatItKnows) {
  const FakeDriver fake;
  FakeNvcomp nvcomp;
  for (const auto& [version, text] : {std::pair{5100u, "5.1.0"}, std::pair{5301u, "5.3.1"},
                                      std::pair{6000u, "6.0.0"}, std::pair{6912u, "6.9.12"}}) {
    nvcomp.SetVersion(version);
    const auto library = Must(NvcompLibrary::Load(SEGUE_FAKE_NVCOMP));
    EXPECT_EQ(library->version(), text);
    nvcomp.Wants(16, 100);
    for (const NvcompLibrary::Codec* codec : {&library->snappy(), &library->lz4()}) {
      EXPECT_EQ(Must(library->TempSize(*codec, 3, 1000, 3000, nullptr)), 300u);
      EXPECT_TRUE(IsAlignedFor(*codec));
    }
  }
  for (const unsigned version : {0u, 2600u, 4200u, 5000u, 7000u, 10000u}) {
    nvcomp.SetVersion(version);
    const Status status = NvcompLibrary::Load(SEGUE_FAKE_NVCOMP).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("versions 5.1 to 6"));
  }
}

TEST(NvcompLibraryTest, WhatIsNoNvcompIsRefused) {
  const Status nowhere = NvcompLibrary::Load("/nowhere/libnvcomp.so.6").status();
  EXPECT_EQ(nowhere.code(), StatusCode::kUnsupported);
  EXPECT_THAT(nowhere.message(), HasSubstr("/nowhere/libnvcomp.so.6"));
  const Status other = NvcompLibrary::Load(SEGUE_FAKE_CUDA).status();
  EXPECT_EQ(other.code(), StatusCode::kUnsupported);
  EXPECT_THAT(other.message(), HasSubstr("lacks nvcompGetProperties"));
}

TEST(NvcompLibraryTest, NamesCodes) {
  const FakeDriver fake;
  const FakeNvcomp nvcomp;
  const auto library = Must(NvcompLibrary::Load(SEGUE_FAKE_NVCOMP));
  EXPECT_TRUE(library->Check(nvcomp::kSuccess, "a call").ok());
  const Status status = library->Check(12, "a call");
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("a call: nvCOMP's code 12"));
}

TEST(NvcompLibraryTest, TheRealOneIsAsItWasRead) {
  const char* const named = std::getenv("SEGUE_NVCOMP");
  if (named == nullptr) GTEST_SKIP() << "SEGUE_NVCOMP names no library";
  const auto library = Must(NvcompLibrary::Load(named));
  for (const NvcompLibrary::Codec* codec : {&library->snappy(), &library->lz4()}) {
    EXPECT_TRUE(IsAlignedFor(*codec));
    EXPECT_LT(Must(library->TempSize(*codec, 128, 1 << 20, 128 << 20, nullptr)), 1u << 30);
  }
}

}  // namespace
}  // namespace segue::cuda
