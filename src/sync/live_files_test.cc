// SPDX-License-Identifier: Apache-2.0
//
// Goal: opening files for writing in place touches no other name of theirs, and what will be
// written has its blocks before the first write.
#include "sync/live_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "sync/checkpoint_state.h"
#include "sync/testing.h"

namespace segue {
namespace {

class LiveFilesTest : public testing::Test {
 protected:
  std::string Shard(int shard) const { return JoinPath(checkpoint_, test::ShardName(shard, 2)); }
  static std::int64_t BlocksOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_blocks;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string checkpoint_ = trainer_.Directory(0);
};

// A link where the private copy is written is not written through.
TEST_F(LiveFilesTest, PrivateCopyFollowsNoLink) {
  const std::string victim = directory_.File("victim");
  test::WriteFile(victim, std::string_view("precious"));
  ASSERT_EQ(::link(Shard(0).c_str(), directory_.File("hard").c_str()), 0);
  ASSERT_TRUE(MakeDirectories(StateDirectory(checkpoint_)).ok());
  const std::string copy = JoinPath(StateDirectory(checkpoint_), "copy-" + test::ShardName(0, 2));
  ASSERT_EQ(::symlink(victim.c_str(), copy.c_str()), 0);
  std::vector<std::string> copied;
  ASSERT_TRUE(OpenLiveFiles(checkpoint_, copied).ok());
  EXPECT_EQ(copied, std::vector<std::string>{test::ShardName(0, 2)});
  EXPECT_EQ(AsText(ReadFile(victim, 100).value()), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(Shard(0)));
}

// Holes get blocks where chunks will be written, so a full disk is met before, not as a SIGBUS in
// the middle; the bytes stay.
TEST_F(LiveFilesTest, HolesGetBlocksBeforeTheyAreWritten) {
  const ByteVector bytes = ReadFile(Shard(0), 1u << 30).value();
  constexpr std::size_t kHole = 256 << 10;
  ASSERT_GT(bytes.size(), kHole + 65536);
  ASSERT_EQ(::truncate(Shard(0).c_str(), 8192), 0);
  ASSERT_EQ(::truncate(Shard(0).c_str(), static_cast<off_t>(bytes.size())), 0);
  std::vector<std::string> copied;
  LiveFiles live = OpenLiveFiles(checkpoint_, copied).value();
  const std::int64_t before = BlocksOf(Shard(0));
  std::byte* const tensor = live.view.Tensor(0);
  std::vector<ChunkWork> work(3);
  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].live = tensor + kHole + i * 65536;
    work[i].size = 65536;
  }
  ASSERT_TRUE(ReserveBlocks(live, work).ok());
  // 512 bytes each; the file system may round up.
  EXPECT_GE(BlocksOf(Shard(0)) - before, 3 * 65536 / 512);
  EXPECT_LT(BlocksOf(Shard(0)), static_cast<std::int64_t>(bytes.size() / 512));
  EXPECT_EQ(FileSize(Shard(0)).value(), bytes.size());
}

}  // namespace
}  // namespace segue
