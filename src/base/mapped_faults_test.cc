// SPDX-License-Identifier: Apache-2.0
//
// Goal: a mapped file that shrinks ends the program with a sentence that names the file and says
// whether an apply had begun, never with a bare signal.
#include "segue/mapped_faults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/begun_apply.h"
#include "base/check.h"
#include "base/file.h"

namespace segue {
namespace {

void Report(std::string_view sentence, bool tainted) {
  (void)!::write(STDERR_FILENO, sentence.data(), sentence.size());
  ::_exit(tainted ? 9 : 8);
}

// Reads a page of a mapped file that has shrunk to nothing.
[[noreturn]] void ReadShrunk(const std::string& path) {
  CatchMappedFaults(Report);
  OutputFile file = OutputFile::Create(path).value();
  SEGUE_CHECK(file.Append(ByteVector(1 << 16)).ok());
  const MappedFile mapped = MappedFile::Open(path).value();
  SEGUE_CHECK(::truncate(path.c_str(), 0) == 0);
  const volatile std::byte* const bytes = mapped.bytes().data();
  (void)bytes[1 << 15];
  ::_exit(0);
}

TEST(MappedFaultsDeathTest, ShrunkFileIsNamed) {
  const std::string path = testing::TempDir() + "segue_shrunk";
  EXPECT_EXIT(ReadShrunk(path), testing::ExitedWithCode(8), "it shrank.*segue_shrunk");
  EXPECT_TRUE(RemoveFile(path).ok());
}

TEST(MappedFaultsDeathTest, BegunApplyIsTainted) {
  const std::string path = testing::TempDir() + "segue_shrunk";
  const BegunApply begun;
  EXPECT_EXIT(ReadShrunk(path), testing::ExitedWithCode(9), "segue_shrunk.*segue resolve");
  EXPECT_TRUE(RemoveFile(path).ok());
}

// Other bus errors stay what they were.
TEST(MappedFaultsDeathTest, RaisedSignalStillEnds) {
  const auto raise = [] {
    CatchMappedFaults(Report);
    (void)::raise(SIGBUS);
    (void)::raise(SIGBUS);
  };
  EXPECT_EXIT(raise(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace segue
