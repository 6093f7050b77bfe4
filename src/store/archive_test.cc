// SPDX-License-Identifier: Apache-2.0
//
// Stores in one file: what is written is read back, what cannot be ours is refused by name.
#include "store/archive.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "store/test_support.h"

namespace segue {
namespace {

ByteVector Bytes(std::string_view text) {
  const ByteSpan bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

class ArchiveTest : public testing::Test {
 protected:
  // An archive of two objects in different folders.
  void Write() {
    auto writer = ArchiveWriter::Create(path_).value();
    ASSERT_TRUE(writer.Add("run/lineage.json", Bytes("{}")).ok());
    ASSERT_TRUE(writer.Add("run/versions/0000000001.json", ByteVector(1000, std::byte{7})).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  Result<std::unique_ptr<Store>> Open() { return OpenStore("file:" + path_, false); }
  void Write(ByteSpan bytes) { ASSERT_TRUE(WriteFileAtomic(path_, bytes).ok()); }
  void Damage(std::uint64_t offset, std::byte value) {
    ByteVector bytes = ReadFile(path_, 1u << 20).value();
    bytes[offset] = value;
    Write(bytes);
  }

  TemporaryFolder directory_;
  std::string path_ = directory_ / "a.segue";
};

TEST_F(ArchiveTest, RoundTrip) {
  Write();
  const auto store = Open().value();
  EXPECT_EQ(store->Get("run/lineage.json", 10).value(), Bytes("{}"));
  EXPECT_EQ(store->Get("run/lineage.json", 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store->Size("run/versions/0000000001.json").value(), 1000u);
  EXPECT_EQ(store->GetRange("run/versions/0000000001.json", 990, 10).value().size(), 10u);
  EXPECT_EQ(store->GetRange("run/versions/0000000001.json", 990, 11).status().code(),
            StatusCode::kCorruption);
  EXPECT_EQ(store->Get("run/nothing", 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store->List("run").value(), std::vector<std::string>{"lineage.json"});
  EXPECT_EQ(store->ListFolders("run").value(), std::vector<std::string>{"versions"});
  EXPECT_EQ(store->ListFolders("").value(), std::vector<std::string>{"run"});
  EXPECT_TRUE(store->List("ru").value().empty());
  EXPECT_EQ(store->PutIfAbsent("run/new", Bytes("x")).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(store->Delete("run/lineage.json").code(), StatusCode::kUnsupported);
}

TEST_F(ArchiveTest, NothingIsLeftOfAnUnfinishedOne) {
  {
    auto writer = ArchiveWriter::Create(path_).value();
    ASSERT_TRUE(writer.Add("run/lineage.json", Bytes("{}")).ok());
  }
  EXPECT_TRUE(ListDirectory(directory_.path()).value().empty());
  Write();
  EXPECT_EQ(ArchiveWriter::Create(path_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ArchiveTest, EveryHeaderByteThatIsDamagedIsSeen) {
  Write();
  const ByteVector good = ReadFile(path_, 1u << 20).value();
  for (std::uint64_t offset = 0; offset < kTarBlockSize; ++offset) {
    Damage(offset, good[offset] ^ std::byte{0x01});
    EXPECT_EQ(Open().status().code(), StatusCode::kCorruption) << offset;
    Write(good);
  }
}

TEST_F(ArchiveTest, TruncatedOnes) {
  Write();
  const ByteVector good = ReadFile(path_, 1u << 20).value();
  // The second of the two blocks at the end is a courtesy.
  for (std::size_t size = 0; size + kTarBlockSize < good.size(); size += 100) {
    Write(ByteSpan(good).first(size));
    EXPECT_EQ(Open().status().code(), StatusCode::kCorruption) << size;
  }
  EXPECT_EQ(OpenStore("file:" + (directory_ / "none"), false).status().code(),
            StatusCode::kNotFound);
}

TEST_F(ArchiveTest, NamesAndTypesThatNoStoreHas) {
  for (const char* name : {"../x", "run/../x", "/etc/passwd", "run//x", ".hidden", "run/x y"}) {
    ByteVector archive = MakeTarHeader(name, 0).value();
    archive.resize(archive.size() + 2 * kTarBlockSize);
    Write(archive);
    EXPECT_EQ(Open().status().code(), StatusCode::kCorruption) << name;
  }
  const ByteVector one = MakeTarHeader("run/x", 0).value();
  ByteVector twice = one;
  twice.insert(twice.end(), one.begin(), one.end());
  twice.resize(twice.size() + kTarBlockSize);
  Write(twice);
  EXPECT_EQ(Open().status().code(), StatusCode::kCorruption);
}

TEST(TarHeaderTest, LongNamesAndLargeSizes) {
  const std::string lineage(128, 'l');
  const std::string name = lineage + "/payloads/0000000001/00000-of-00001-0123456789abcdef";
  for (const std::uint64_t size : {0ull, 1ull, (1ull << 33) - 1, 1ull << 33, 1ull << 50}) {
    const auto header = ParseTarHeader(MakeTarHeader(name, size).value());
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->name, name);
    EXPECT_EQ(header->size, size);
  }
  EXPECT_FALSE(MakeTarHeader(std::string(101, 'x'), 0).ok());
  EXPECT_FALSE(MakeTarHeader(std::string(156, 'p') + "/x", 0).ok());
}

}  // namespace
}  // namespace segue
