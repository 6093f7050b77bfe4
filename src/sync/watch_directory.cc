// SPDX-License-Identifier: Apache-2.0
//
// Watched directory. Ages are measured by this process's own clock, from the look that saw a
// change: file times are compared for equality alone, since a file server's clock may be off.
#include "sync/watch_directory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/file.h"

namespace segue {
namespace {

constexpr int kQuietInSettles = 12;

}  // namespace

std::optional<std::uint64_t> StepOfName(const std::string& name) {
  constexpr std::string_view kDigits = "0123456789";
  if (name.empty() || name.front() == '.') return std::nullopt;
  const std::size_t last = name.find_last_of(kDigits);
  if (last == std::string::npos) return std::nullopt;
  const std::size_t before = name.find_last_not_of(kDigits, last);
  const std::size_t first = before == std::string::npos ? 0 : before + 1;
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + first, name.data() + last + 1, step);
  if (error != std::errc()) return std::nullopt;
  return step;
}

Result<std::vector<FileFacts>> ReadFileFacts(const std::string& directory) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(directory));
  std::vector<FileFacts> facts;
  for (const std::string& name : names) {
    const std::filesystem::path path = JoinPath(directory, name);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) continue;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    if (error) continue;  // Gone since it was listed.
    const auto modified = std::filesystem::last_write_time(path, error);
    if (error) continue;
    facts.push_back({name, size, modified.time_since_epoch().count()});
  }
  return facts;
}

bool Candidate::HasFile(const std::string& file) const {
  return std::any_of(files.begin(), files.end(),
                     [&file](const FileFacts& facts) { return facts.name == file; });
}

Result<std::vector<Candidate>> WatchedDirectory::Look() {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(path_));
  std::map<std::string, Seen> seen;
  std::vector<Candidate> candidates;
  const auto now = environment_.Now();
  for (const std::string& name : names) {
    const auto step = StepOfName(name);
    if (!step) continue;
    Candidate candidate{*step, name, JoinPath(path_, name), false, false, {}};
    auto files = ReadFileFacts(candidate.path);
    if (!files.ok()) continue;  // No directory, or gone.
    const auto known = seen_.find(name);
    const bool same = known != seen_.end() && known->second.files == files.value();
    const auto since = same ? known->second.since : now;
    candidate.settled = same && now - since >= settle_;
    candidate.quiet = same && now - since >= kQuietInSettles * settle_;
    candidate.files = files.value();
    seen.emplace(name, Seen{std::move(files).value(), since});
    candidates.push_back(std::move(candidate));
  }
  seen_ = std::move(seen);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return b.IsAfter(a); });
  return candidates;
}

}  // namespace segue
