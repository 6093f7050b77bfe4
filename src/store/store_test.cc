// SPDX-License-Identifier: Apache-2.0
//
// What all stores share: object names, the opening of URLs, PutIfAbsent. What must hold: every bad
// name and URL is refused in a sentence that names it, before anything is opened.
#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// case B5: names that would leave the store, or that some system reads in its own way.
const std::vector<std::string>& BadNames() {
  static const std::vector<std::string> names = {"",
                                                 ".",
                                                 "..",
                                                 "/",
                                                 "//",
                                                 "../x.safetensors",
                                                 "/etc/x",
                                                 "a/../../x",
                                                 "a/..",
                                                 "a/.",
                                                 "a//b",
                                                 "a/",
                                                 "./a",
                                                 "C:\\x",
                                                 "a\\b",
                                                 "a b",
                                                 "a\n",
                                                 "~",
                                                 "*",
                                                 "%2e%2e",
                                                 "caf\xc3\xa9",
                                                 ".tmp/x",
                                                 ".hidden",
                                                 "a/.nfs1",
                                                 std::string("x\0y", 3),
                                                 std::string("x\0", 2),
                                                 std::string(256, 'a'),
                                                 std::string(256, 'a') + "/b"};
  return names;
}

TEST(ObjectNameTest, AcceptsPlainNamesUpToTheLimits) {
  std::string longest = std::string(255, 'a') + "/" + std::string(255, 'b') + "/";
  EXPECT_EQ(longest.size(), 512u);
  longest.pop_back();
  for (const std::string& name :
       {std::string("a"), std::string("lineage/versions/0000000001.json"), std::string("A-z_0.9"),
        std::string("-"), std::string("a..b"), std::string("a."), std::string(255, 'a'), longest}) {
    EXPECT_TRUE(CheckObjectName(name).ok()) << name;
  }
}

// case B5
TEST(ObjectNameTest, RefusesEveryBadName) {
  for (const std::string& name : BadNames()) {
    const Status status = CheckObjectName(name);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
  }
  std::string too_long = "a";
  while (too_long.size() < 513) too_long += "/a";
  EXPECT_EQ(CheckObjectName(too_long).code(), StatusCode::kInvalidArgument);
}

TEST(ObjectNameTest, MessagesAreFitForALogLine) {
  EXPECT_THAT(CheckObjectName("a/../b").message(),
              AllOf(HasSubstr("'a/../b'"), HasSubstr("begins with '.'"), HasSubstr("expected")));
  EXPECT_THAT(CheckObjectName(std::string("x\0\ny", 4)).message(), HasSubstr("'x\\x00\\x0ay'"));
  EXPECT_LT(CheckObjectName(std::string(100'000, 'a')).message().size(), 300u);
}

// case B5: refused lexically, so no call reaches the file system.
TEST(ObjectNameTest, BadNamesReachNoFile) {
  const TemporaryFolder folder;
  FaultyFileSystem files;
  const std::unique_ptr<DirStore> store = folder.OpenDirStore(files);
  files.calls.clear();
  for (const std::string& name : BadNames()) {
    EXPECT_EQ(store->PutIfAbsent(name, {}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->Get(name, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->GetRange(name, 0, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->Size(name).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->Delete(name).code(), StatusCode::kInvalidArgument);
    if (name.empty()) continue;  // The root, which may be listed.
    EXPECT_EQ(store->List(name).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(files.calls.empty());

  const std::unique_ptr<StoreWriter> writer = store->StartWrite().value();
  files.calls.clear();
  EXPECT_EQ(writer->Commit("../x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(files.calls.empty());
}

TEST(OpenStoreTest, OpensPathsAndDirUrls) {
  const TemporaryFolder folder;
  for (const std::string& url : {folder.path(), "dir:" + folder.path(), folder.path() + "//"}) {
    const auto store = OpenStore(url, false);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    EXPECT_EQ(store.value()->url(), url);
    EXPECT_TRUE(store.value()->List("").value().empty());
  }
}

TEST(OpenStoreTest, CreatesTheRootAndWhatIsAbove) {
  const TemporaryFolder folder;
  const auto store = OpenStore("dir:" + (folder / "a/b/c:d/"), true);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_TRUE(store.value()->PutIfAbsent("x", AsBytes("1")).ok());
  EXPECT_TRUE(FileExists(folder / "a/b/c:d/x"));
}

TEST(OpenStoreTest, RefusesInSentences) {
  const TemporaryFolder folder;
  WriteRaw(folder / "file", "1");
  const auto refusal = [](const std::string& url, bool create) {
    return OpenStore(url, create).status();
  };
  EXPECT_THAT(refusal(folder / "none", false).ToString(),
              AllOf(HasSubstr("not_found"), HasSubstr("/none' should be a folder"),
                    HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder / "file", false).ToString(),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("/file' is not a folder")));
  EXPECT_EQ(refusal(folder / "file", true).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(refusal(folder / "file/below", true).ok());
  for (const std::string url : {"ftp:/tmp/x", "C:\\x"}) {
    EXPECT_THAT(refusal(url, true).ToString(),
                AllOf(HasSubstr("unsupported"), HasSubstr("'" + url + "'"),
                      HasSubstr("expected dir:PATH")));
  }
  for (const std::string& url : {std::string(), std::string("dir:"), std::string("dir:/a\0b", 8)}) {
    EXPECT_EQ(refusal(url, true).code(), StatusCode::kInvalidArgument) << url;
  }
}

// A folder that another machine has just made, remembered as absent by ours. case G1
TEST(OpenStoreTest, SeesAFreshRoot) {
  const TemporaryFolder folder;
  ASSERT_TRUE(MakeDirectories(folder / "root").ok());
  FaultyFileSystem files;
  files.Hide(folder / "root");
  EXPECT_TRUE(DirStore::Open({.url = "u", .root = folder / "root"}, files).ok());
}

TEST(PutIfAbsentTest, TheFirstOneStays) {
  const TemporaryFolder folder;
  const std::unique_ptr<Store> store = OpenStore(folder.path(), false).value();
  EXPECT_EQ(store->PutIfAbsent("a/b", AsBytes("first")).value(), PutOutcome::kCreated);
  EXPECT_EQ(store->PutIfAbsent("a/b", AsBytes("second")).value(), PutOutcome::kAlreadyThere);
  EXPECT_EQ(AsText(store->Get("a/b", 100).value()), "first");
}

}  // namespace
}  // namespace segue
