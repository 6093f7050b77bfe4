// SPDX-License-Identifier: Apache-2.0
//
// ScratchDirectory: mkdtemp, and the removal of the tree.
#include "base/scratch_directory.h"

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace segue {

Result<ScratchDirectory> ScratchDirectory::Make(const std::string& parent,
                                                const std::string& label) {
  std::error_code error;
  std::string root = parent;
  if (root.empty()) root = std::filesystem::temp_directory_path(error).string();
  if (root.empty()) root = "/tmp";
  SEGUE_RETURN_IF_ERROR(MakeDirectories(root));
  std::string path = JoinPath(root, label + "-XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus("make a directory in", root);
  return ScratchDirectory(std::move(path));
}

ScratchDirectory::~ScratchDirectory() {
  if (!path_.empty()) (void)RemoveTree(path_);  // Nobody is left to be told.
}

}  // namespace segue
