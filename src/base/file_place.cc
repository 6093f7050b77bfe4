// SPDX-License-Identifier: Apache-2.0
//
// File place: the walk from an open folder, and what a link in the last place leads to.
#include "base/file_place.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>

namespace segue {
namespace {

constexpr std::string_view kPinned = "/proc/self/fd/";

int OpenAt(int folder, const char* name, int flags, mode_t mode) {
  for (;;) {
    const int opened = ::openat(folder, name, flags | O_CLOEXEC, mode);
    if (opened >= 0 || errno != EINTR) return opened;
  }
}

int Fail(int error) {
  errno = error;
  return -1;
}

bool IsLink(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISLNK(info.st_mode);
}

// Where the kernel says that an open file is now; empty where it cannot.
std::string PathOf(int descriptor) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(PinnedPath(descriptor, "").c_str(), path, sizeof path);
  return size > 0 && size < static_cast<ssize_t>(sizeof path)
             ? std::string(path, static_cast<std::size_t>(size))
             : std::string();
}

bool IsBelow(int descriptor, int root) {
  std::string above = PathOf(root);
  if (above.empty()) return false;
  if (above.back() != '/') above += '/';
  return PathOf(descriptor).starts_with(above);
}

// First where the link leads, by a descriptor that reads nothing; then that very file is opened.
int OpenLinked(const FilePlace& place, int flags) {
  const int found = OpenAt(place.folder, place.name.c_str(), O_PATH, 0);
  if (found < 0) return found;
  const int opened = IsBelow(found, place.root)
                         ? OpenAt(AT_FDCWD, PinnedPath(found, "").c_str(), flags, 0)
                         : Fail(ELOOP);
  const int error = errno;
  ::close(found);
  errno = error;
  return opened;
}

}  // namespace

FilePlace::FilePlace(FilePlace&& other) noexcept
    : folder(std::exchange(other.folder, AT_FDCWD)),
      name(std::move(other.name)),
      confined(other.confined),
      root(other.root),
      error(other.error) {}

FilePlace::~FilePlace() {
  if (folder >= 0) ::close(folder);
}

int OpenFolderAt(int folder, const std::string& name, int flags) {
  const int opened = OpenAt(folder, name.c_str(), flags | O_DIRECTORY, 0);
  if (opened >= 0) return opened;
  const int error = errno;
  struct stat info {};
  const bool is_link = error == ENOTDIR && (flags & O_NOFOLLOW) != 0 &&
                       ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISLNK(info.st_mode);
  return is_link ? -ELOOP : -error;
}

FilePlace PlaceBelow(int top, std::string below) {
  FilePlace place("");
  place.confined = true;
  place.folder = top;
  for (std::size_t slash = 0; place.folder >= 0; below.erase(0, slash + 1)) {
    slash = below.find('/');
    if (slash == std::string::npos) break;
    const std::string name = below.substr(0, slash);
    const bool is_name = !name.empty() && name != "." && name != "..";
    const int next = is_name ? OpenFolderAt(place.folder, name, O_PATH | O_NOFOLLOW) : -EINVAL;
    ::close(place.folder);
    place.folder = next;
  }
  if (place.folder < 0) place.error = place.folder;
  place.name = std::move(below);
  return place;
}

std::string PinnedPath(int folder, std::string_view below) {
  std::string path = std::string(kPinned) + std::to_string(folder);
  if (!below.empty()) path.append("/").append(below);
  return path;
}

FilePlace LocateFile(const std::string& path) {
  if (!path.starts_with(kPinned)) return FilePlace(path);
  const char* const end = path.data() + path.size();
  int root = -1;
  const auto number = std::from_chars(path.data() + kPinned.size(), end, root);
  const bool whole = number.ec == std::errc() && (number.ptr == end || *number.ptr == '/');
  if (!whole || root < 0) return FilePlace(path);
  std::string below(std::find_if(number.ptr, end, [](char c) { return c != '/'; }), end);
  // O_PATH: a folder that may be entered need not be readable.
  const int top = OpenFolderAt(root, ".", O_PATH);
  // A descriptor that is no folder is not a pin: "/proc/self/fd/0", say.
  if (top == -ENOTDIR) return FilePlace(path);
  FilePlace place = PlaceBelow(top, below.empty() ? "." : std::move(below));
  if (place.name == ".." || place.name.empty()) place.error = -EINVAL;
  place.root = root;
  return place;
}

int OpenPath(const std::string& path, int flags, mode_t mode, bool follow) {
  const FilePlace place = LocateFile(path);
  if (place.error < 0) return Fail(-place.error);
  const int no_links = place.confined || !follow ? O_NOFOLLOW : 0;
  int opened = OpenAt(place.folder, place.name.c_str(), flags | no_links, mode);
  if (opened >= 0 && place.confined && IsLink(opened)) {  // As O_PATH opens one.
    ::close(opened);
    opened = Fail(ELOOP);
  }
  const bool is_read = (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY;
  const bool is_linked = opened < 0 && errno == ELOOP && place.confined;
  if (!is_linked || !follow || !is_read || (flags & O_NOFOLLOW) != 0) return opened;
  return OpenLinked(place, flags);
}

int ExaminePath(const std::string& path, struct stat& info) {
  const FilePlace place = LocateFile(path);
  if (place.error < 0) return Fail(-place.error);
  return ::fstatat(place.folder, place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW);
}

}  // namespace segue
