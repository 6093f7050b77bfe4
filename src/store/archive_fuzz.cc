// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: a store in one file, as found. Whatever opens must list, and every object that it
// lists must be readable within the file.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "store/archive.h"

namespace {

std::string ScratchFile() {
  const char* const folder = std::getenv("TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/archive-fuzz-" +
         std::to_string(::getpid());
}

void ReadAll(segue::Store& store, const std::string& folder) {
  const auto prefix = folder.empty() ? "" : folder + "/";
  const auto names = store.List(folder).value();
  for (const std::string& name : names) {
    const auto size = store.Size(prefix + name).value();
    SEGUE_CHECK(store.Get(prefix + name, size).value().size() == size);
  }
  const auto folders = store.ListFolders(folder).value();
  for (const std::string& name : folders) ReadAll(store, prefix + name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path = ScratchFile();
  const segue::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  SEGUE_CHECK(segue::WriteFileAtomic(path, bytes).ok());
  const auto store = segue::ArchiveStore::Open("file:" + path, path);
  if (store.ok()) ReadAll(*store.value(), "");
  SEGUE_CHECK(segue::RemoveFile(path).ok());
  return 0;
}
