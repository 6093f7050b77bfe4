// SPDX-License-Identifier: Apache-2.0
//
// Path roots: what is below them, and what only looks as if it were.
#include "interop/path_roots.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/testing.h"

namespace segue {
namespace {

class PathRootsTest : public ::testing::Test {
 protected:
  PathRootsTest() : real_(std::filesystem::canonical(folder_.path()).string()) {
    for (const char* const name : {"root", "root/a", "root-not", "outside", "second"}) {
      std::filesystem::create_directory(Path(name));
    }
    roots_ = PathRoots::Make({Path("root"), Path("second")}).value();
  }
  std::string Path(const std::string& name) const { return JoinPath(real_, name); }
  bool Allows(const std::string& path) const { return roots_.Resolve(path).ok(); }

  test::TemporaryDirectory folder_;
  std::string real_;
  PathRoots roots_;
};

TEST_F(PathRootsTest, BelowARoot) {
  EXPECT_EQ(roots_.Resolve(Path("root/a")).value(), Path("root/a"));
  EXPECT_EQ(roots_.Resolve(Path("root/a/b/c")).value(), Path("root/a/b/c"));  // Not there yet.
  EXPECT_EQ(roots_.Resolve(Path("root//a/./b/")).value(), Path("root/a/b"));
  EXPECT_EQ(roots_.Resolve(Path("second")).value(), Path("second"));
}

TEST_F(PathRootsTest, Outside) {
  for (const std::string& path : {Path("outside"), Path("root-not/x"), Path(""), std::string("/"),
                                  std::string(), std::string("root/a"), Path("root/../root/a"),
                                  Path("root/a/.."), Path("root/a") + std::string(1, '\0')}) {
    EXPECT_EQ(roots_.Resolve(path).status().code(), StatusCode::kInvalidArgument) << path;
  }
}

TEST_F(PathRootsTest, LinksCountByWhatTheyLeadTo) {
  std::filesystem::create_symlink(Path("outside"), Path("root/out"));
  std::filesystem::create_symlink(Path("root/a"), Path("root/in"));
  std::filesystem::create_symlink("loop", Path("root/loop"));
  std::filesystem::create_symlink(Path("outside/nothing"), Path("root/dangling"));
  EXPECT_FALSE(Allows(Path("root/out")));
  EXPECT_FALSE(Allows(Path("root/out/x")));
  EXPECT_FALSE(Allows(Path("root/loop")));
  EXPECT_EQ(roots_.Resolve(Path("root/in/x")).value(), Path("root/a/x"));
  // A root that is a link itself.
  std::filesystem::create_symlink(Path("root"), Path("to-root"));
  const PathRoots linked = PathRoots::Make({Path("to-root")}).value();
  EXPECT_TRUE(linked.Resolve(Path("root/a")).ok());
  EXPECT_TRUE(linked.Resolve(Path("to-root/a")).ok());
}

TEST_F(PathRootsTest, APinnedPathStaysBelowItsRoot) {
  test::WriteFile(Path("root/a/file"), "inside");
  test::WriteFile(Path("outside/file"), "outside");
  std::filesystem::create_symlink(Path("root/a"), Path("root/in"));
  const std::string pinned = roots_.Pin(Path("root/in/file")).value();
  EXPECT_EQ(AsText(ReadFile(pinned, 100).value()), "inside");
  EXPECT_EQ(roots_.Reveal("a '" + pinned + "'"), "a '" + Path("root/a/file") + "'");
  EXPECT_EQ(roots_.Reveal(roots_.Pin(Path("second")).value() + ": b"), Path("second") + ": b");
  // Swapped after it was asked for.
  std::filesystem::rename(Path("root/a"), Path("root/b"));
  std::filesystem::create_symlink(Path("outside"), Path("root/a"));
  EXPECT_EQ(ReadFile(pinned, 100).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(roots_.Pin(Path("root/a/file")).status().code(), StatusCode::kInvalidArgument);
  // The root itself is the operator's: it may be moved.
  const std::string whole = roots_.Pin(Path("root")).value();
  std::filesystem::rename(Path("root"), Path("moved"));
  EXPECT_EQ(AsText(ReadFile(JoinPath(whole, "b/file"), 100).value()), "inside");
  const PathRoots all = PathRoots::Make({"/"}).value();
  const std::string file = all.Pin(Path("outside/file")).value();
  EXPECT_EQ(AsText(ReadFile(file, 100).value()), "outside");
  EXPECT_EQ(all.Reveal(file), Path("outside/file"));
}

TEST_F(PathRootsTest, WithoutRoots) {
  EXPECT_TRUE(PathRoots().Resolve(Path("outside")).ok());
  EXPECT_EQ(PathRoots().Pin(Path("outside")).value(), Path("outside"));
  EXPECT_FALSE(PathRoots().Resolve("relative").ok());
  EXPECT_EQ(PathRoots::Make({Path("nowhere")}).status().code(), StatusCode::kInvalidArgument);
  test::WriteFile(Path("file"), "x");
  EXPECT_EQ(PathRoots::Make({Path("file")}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(PathRoots::Make({"/"}).value().Resolve(Path("outside")).ok());
}

}  // namespace
}  // namespace segue
