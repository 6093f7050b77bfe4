// SPDX-License-Identifier: Apache-2.0
//
// Path roots by the standard library's canonical paths.
#include "interop/path_roots.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/tensor.h"

namespace segue {
namespace {

bool IsBelow(const std::string& path, const std::string& root) {
  if (root == "/" || path == root) return true;
  return path.starts_with(root) && path[root.size()] == '/';
}

bool HasDotDot(const std::filesystem::path& path) {
  return std::find(path.begin(), path.end(), "..") != path.end();
}

std::string WithoutEndSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<PathRoots> PathRoots::Make(const std::vector<std::string>& roots) {
  PathRoots made;
  for (const std::string& root : roots) {
    std::error_code error;
    std::string real = std::filesystem::canonical(root, error).string();
    if (error || !std::filesystem::is_directory(real, error)) {
      return InvalidArgument("root " + Quoted(root) + " is no directory");
    }
    made.roots_.push_back(std::move(real));
  }
  return made;
}

Result<std::string> PathRoots::Resolve(const std::string& path) const {
  const auto refuse = [&](const std::string& reason) {
    return InvalidArgument("path " + Quoted(path) + " " + reason);
  };
  if (!path.starts_with('/') || path.find('\0') != std::string::npos) {
    return refuse("is not absolute");
  }
  if (HasDotDot(path)) return refuse("has '..' in it");
  std::error_code error;
  std::string real = WithoutEndSlash(std::filesystem::weakly_canonical(path, error).string());
  if (error) return refuse("cannot be followed: " + error.message());
  const auto allows = [&real](const std::string& root) { return IsBelow(real, root); };
  if (roots_.empty() || std::any_of(roots_.begin(), roots_.end(), allows)) return real;
  return refuse("leads out of every --pull-root");
}

}  // namespace segue
