// SPDX-License-Identifier: Apache-2.0
//
// ConfinedFiles: the walk from the root to a name's folder.
#include "store/confined_files.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace segue {
namespace {

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

ConfinedFiles::ConfinedFiles(const std::string& root)
    : root_(WithoutTrailingSlashes(root)), prefix_(root_.ends_with('/') ? root_ : root_ + "/") {}

FilePlace ConfinedFiles::Locate(const std::string& path) {
  FilePlace place(path);
  if (!path.starts_with(prefix_)) return place;
  std::string rest = path.substr(prefix_.size());
  place.confined = true;
  // O_PATH: a folder that may be entered need not be readable.
  place.folder = OpenFolderAt(AT_FDCWD, root_, O_PATH);
  for (std::size_t slash = 0; place.folder >= 0; rest.erase(0, slash + 1)) {
    slash = rest.find('/');
    if (slash == std::string::npos) break;
    const std::string name = rest.substr(0, slash);
    const bool is_name = !name.empty() && name != "." && name != "..";
    const int next = is_name ? OpenFolderAt(place.folder, name, O_PATH | O_NOFOLLOW) : -EINVAL;
    ::close(place.folder);
    place.folder = next;
  }
  if (place.folder < 0) place.error = place.folder;
  place.name = rest;
  return place;
}

}  // namespace segue
