// SPDX-License-Identifier: Apache-2.0
//
// Path roots by the standard library's canonical paths, and a descriptor for each root.
#include "interop/path_roots.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/file_place.h"
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

std::shared_ptr<const int> OpenRoot(const std::string& path) {
  const auto close = [](const int* folder) {
    ::close(*folder);
    delete folder;
  };
  const int folder = OpenFolderAt(AT_FDCWD, path, O_PATH);
  if (folder < 0) return nullptr;
  return {new const int(folder), close};
}

// Every `pin` in the text that no digit follows becomes `path`.
void Replace(std::string& text, const std::string& pin, const std::string& path) {
  for (std::size_t at = text.find(pin); at != std::string::npos; at = text.find(pin, at)) {
    const std::size_t end = at + pin.size();
    const bool is_longer = end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]));
    if (!is_longer) text.replace(at, pin.size(), path);
    at += is_longer ? pin.size() : path.size();
  }
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
    std::shared_ptr<const int> folder = OpenRoot(real);
    if (folder == nullptr) return ErrnoStatus("open root", real);
    made.roots_.push_back({std::move(real), std::move(folder)});
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
  if (roots_.empty() || Above(real) != nullptr) return real;
  return refuse("leads out of every --pull-root");
}

const PathRoots::Root* PathRoots::Above(const std::string& path) const {
  const auto above = [&path](const Root& root) { return IsBelow(path, root.path); };
  const auto found = std::find_if(roots_.begin(), roots_.end(), above);
  return found == roots_.end() ? nullptr : &*found;
}

Result<std::string> PathRoots::Pin(const std::string& path) const {
  SEGUE_ASSIGN_OR_RETURN(std::string real, Resolve(path));
  const Root* const root = Above(real);
  if (root == nullptr) return real;
  const std::size_t below = std::min(real.size(), root->path.size() + (root->path == "/" ? 0 : 1));
  return PinnedPath(*root->folder, std::string_view(real).substr(below));
}

std::string PathRoots::Reveal(std::string text) const {
  for (const Root& root : roots_) {
    Replace(text, PinnedPath(*root.folder, ""), root.path == "/" ? "" : root.path);
  }
  return text;
}

Status PathRoots::Reveal(const Status& status) const {
  return status.ok() ? status : Status(status.code(), Reveal(status.message()));
}

}  // namespace segue
