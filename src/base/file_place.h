// SPDX-License-Identifier: Apache-2.0
//
// File place: what a path names, as a name in a folder that is open. A path can be *pinned* to an
// open folder; then nothing that it names is outside of that folder, whatever links are below it
// and whoever swaps folders for links meanwhile. Paths that strangers name (stores that are served,
// pulls) are confined by it.
//
// A pinned path is spelled "/proc/self/fd/N/a/b": the kernel reads it as below the folder that is
// open as N, too, so a call that knows nothing of places still begins there. Everything in
// base/file.h does know: each folder on the way is opened from the one before without following a
// link. A link in the last place is read only where the caller follows links and it leads to a
// file below the folder; it is never written through.
//
// Step by step rather than by openat2(RESOLVE_NO_SYMLINKS): names have few parts and no "..", so
// both promise the same, and older kernels and the sandboxes of containers refuse the newer call.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

namespace segue {

// What a path names: `name` as seen from the folder. AT_FDCWD is the working directory.
struct FilePlace {
  explicit FilePlace(std::string path) : name(std::move(path)) {}
  ~FilePlace();
  FilePlace(FilePlace&& other) noexcept;
  FilePlace& operator=(FilePlace&&) = delete;

  int folder = AT_FDCWD;  // Closed with the place.
  std::string name;
  bool confined = false;  // A link in the last place is not followed, not even to a folder.
  int root = -1;          // The folder that a path is pinned to; not closed.
  int error = 0;          // -errno: there is no such place.
};

// Opens a folder as openat() does; -errno. A link that O_NOFOLLOW refuses is ELOOP, as with files,
// where the kernel says ENOTDIR: "not there" would be a lie.
int OpenFolderAt(int folder, const std::string& name, int flags);

// The place of `below`, a relative path, as seen from the open folder `top`, which it closes. Every
// part is a name ("." and "..": EINVAL) and no link (ELOOP).
FilePlace PlaceBelow(int top, std::string below);

// Spells a path that is pinned to the open folder.
std::string PinnedPath(int folder, std::string_view below);
// The place of any path: confined where it is pinned.
FilePlace LocateFile(const std::string& path);

// open() and lstat() of a path's place; -1 with errno. `follow`: a link in a pinned path's last
// place is followed where it is opened for reading and leads below the folder (else ELOOP); of a
// path that is not pinned the kernel follows it, unless the flags say O_NOFOLLOW.
int OpenPath(const std::string& path, int flags, mode_t mode = 0, bool follow = true);
int ExaminePath(const std::string& path, struct stat& info);

}  // namespace segue
