// SPDX-License-Identifier: Apache-2.0
//
// Spool: memory first, then a file that goes away with its descriptor.
#include "store/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "base/limits.h"

namespace segue {

Spool::~Spool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status Spool::Append(ByteSpan bytes) {
  SEGUE_RETURN_IF_ERROR(failure_);
  if (descriptor_ < 0 && size_ + bytes.size() > limits::kSpoolMemoryMax) failure_ = MoveToFile();
  if (failure_.ok()) {
    hasher_.Add(bytes);
    if (descriptor_ < 0) {
      AppendBytes(memory_, bytes);
    } else {
      failure_ = WriteFile(bytes);
    }
    size_ += bytes.size();
  }
  return failure_;
}

Status Spool::MoveToFile() {
  const char* const named = std::getenv("TMPDIR");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp";
  // A name for the moment, since not every file system has files without one.
  std::string path = JoinPath(folder, "segue-spool-XXXXXX");
  descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0) return ErrnoStatus("create a temporary file in", folder);
  if (::unlink(path.c_str()) != 0) return ErrnoStatus("remove", path);
  Status written = WriteFile(memory_);
  memory_ = ByteVector();
  return written;
}

Status Spool::WriteFile(ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus("write", "a temporary file of an object to be sent");
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

Status Spool::Read(std::uint64_t offset, MutableByteSpan target) const {
  SEGUE_CHECK(offset + target.size() <= size_);
  if (descriptor_ < 0) {
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset), target.size(),
                target.begin());
    return {};
  }
  while (!target.empty()) {
    const ssize_t got =
        ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ErrnoStatus("read", "a temporary file of an object to be sent");
    target = target.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Sha256 Spool::Finish() { return hasher_.Finish(); }

}  // namespace segue
