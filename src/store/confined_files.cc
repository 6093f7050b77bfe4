// SPDX-License-Identifier: Apache-2.0
//
// ConfinedFiles: a path's place below the root, by the walk of base/file_place.h.
#include "store/confined_files.h"

#include <fcntl.h>

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
  if (!path.starts_with(prefix_)) return FilePlace(path);
  // O_PATH: a folder that may be entered need not be readable.
  return PlaceBelow(OpenFolderAt(AT_FDCWD, root_, O_PATH), path.substr(prefix_.size()));
}

}  // namespace segue
