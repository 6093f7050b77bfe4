// SPDX-License-Identifier: Apache-2.0
//
// Fetch: store to file in bounded pieces, then stage, then fold the chain from its oldest delta on.
// Nothing is synced: a file that a crash loses is fetched again, and on a disk two syncs for each
// version of a long chain cost more than all the rest.
#include "sync/fetch.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "delta/compose.h"
#include "sync/stopwatch.h"

namespace segue {
namespace {

constexpr std::uint64_t kFetchPieceSize = 8ull << 20;
// Payloads up to this size are staged by the thread that fetched them: on a busy machine others
// take longer to begin than this takes to do.
constexpr std::uint64_t kOneThreadSizeMax = 64ull << 10;

unsigned ThreadsFor(std::uint64_t payload_bytes, unsigned threads) {
  return payload_bytes <= kOneThreadSizeMax ? 1 : threads;
}

Status FetchObject(Store& store, const PayloadEntry& entry, const std::string& path,
                   const std::stop_token& stop) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  for (std::uint64_t offset = 0; offset < entry.size; offset += kFetchPieceSize) {
    if (stop.stop_requested()) return Unavailable("the fetch was aborted");
    const std::uint64_t size = std::min(kFetchPieceSize, entry.size - offset);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector piece, store.GetRange(entry.object, offset, size));
    SEGUE_RETURN_IF_ERROR(file.Append(piece));
  }
  return file.Close();
}

class Fetcher {
 public:
  Fetcher(Store& store, const Plan& plan, const std::string& directory, unsigned threads,
          const std::stop_token& stop)
      : store_(store), plan_(plan), directory_(directory), threads_(threads), stop_(stop) {}

  Status Add(const Manifest& manifest) {
    Stopwatch watch;
    std::vector<std::string> paths;
    for (const PayloadEntry& entry : manifest.payloads) {
      paths.push_back(NextPath());
      SEGUE_RETURN_IF_ERROR(FetchObject(store_, entry, paths.back(), stop_));
      result_.fetched_bytes += entry.size;
    }
    result_.fetch_s += watch.Lap();
    std::vector<MappedFile> files;
    std::vector<ByteSpan> payloads;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      SEGUE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(paths[i]));
      SEGUE_RETURN_IF_ERROR(StagedDelta::VerifyPayload(manifest.payloads[i], file.bytes()));
      files.push_back(std::move(file));
      payloads.push_back(files.back().bytes());
    }
    std::uint64_t size = 0;
    for (const PayloadEntry& entry : manifest.payloads) size += entry.size;
    SEGUE_ASSIGN_OR_RETURN(StagedDelta staged,
                           StagedDelta::Stage(plan_, payloads, ThreadsFor(size, threads_)));
    SEGUE_RETURN_IF_ERROR(CheckCounts(manifest, staged));
    const DeltaIdentity& identity = manifest.identity;
    if (staged.difference() != identity.target_digest - identity.base_digest) {
      return Corruption("the payloads of version " + std::to_string(identity.target_version) +
                        " do not lead from its base digest to its target digest");
    }
    files.clear();
    SEGUE_RETURN_IF_ERROR(Join(std::move(staged), paths, manifest));
    result_.stage_s += watch.Lap();
    return {};
  }

  FetchedDelta Take() { return std::move(result_); }

 private:
  // What the manifest says of its payloads is true of them.
  Status CheckCounts(const Manifest& manifest, const StagedDelta& staged) const {
    std::uint64_t rows = 0;
    for (const PayloadEntry& entry : manifest.payloads) rows += entry.rows;
    const auto check = [&](const char* what, std::uint64_t stated, std::uint64_t found) {
      if (stated == found) return Status();
      return Corruption("the manifest of version " +
                        std::to_string(manifest.identity.target_version) + " states " +
                        std::to_string(stated) + " " + what + ", its payloads have " +
                        std::to_string(found));
    };
    SEGUE_RETURN_IF_ERROR(check("rows", rows, staged.rows().size()));
    SEGUE_RETURN_IF_ERROR(
        check("changed chunks", manifest.identity.changed_chunks, staged.rows().size()));
    SEGUE_RETURN_IF_ERROR(
        check("changed elements", manifest.identity.changed_elements, staged.changed_elements()));
    return check("model bytes", manifest.model_bytes, plan_.model_size());
  }

  std::string NextPath() { return JoinPath(directory_, "part-" + std::to_string(counter_++)); }

  // The first delta in one payload is kept as it is; everything else is composed into a new file.
  Status Join(StagedDelta staged, const std::vector<std::string>& paths, const Manifest& manifest) {
    if (result_.path.empty() && paths.size() == 1) {
      result_.path = paths.front();
      result_.size = manifest.payloads.front().size;
      result_.sha256 = manifest.payloads.front().sha256;
      result_.staged = std::move(staged);
      return {};
    }
    const Profile profile =
        ProfileFromName(manifest.identity.profile).value_or(Profile::kSparseZstd);
    const std::string path = NextPath();
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    SEGUE_ASSIGN_OR_RETURN(const PayloadSummary summary,
                           ComposeDeltas(plan_, result_.staged, staged, profile,
                                         [&](ByteSpan bytes) { return file.Append(bytes); }));
    SEGUE_RETURN_IF_ERROR(file.Close());
    for (const std::string& old : paths) SEGUE_RETURN_IF_ERROR(RemoveFile(old));
    if (!result_.path.empty()) SEGUE_RETURN_IF_ERROR(RemoveFile(result_.path));
    staged = StagedDelta();
    result_.staged = StagedDelta();
    result_.path = path;
    result_.size = summary.size;
    result_.sha256 = summary.sha256;
    SEGUE_ASSIGN_OR_RETURN(result_.staged,
                           StageFile(plan_, path, summary.size, summary.sha256, threads_));
    return {};
  }

  Store& store_;
  const Plan& plan_;
  const std::string& directory_;
  unsigned threads_;
  const std::stop_token& stop_;
  unsigned counter_ = 0;
  FetchedDelta result_;
};

}  // namespace

Result<FetchedDelta> FetchChain(Store& store, const Plan& plan, const std::vector<Manifest>& chain,
                                const std::string& directory, unsigned threads,
                                const Progress& progress, const std::stop_token& stop) {
  Fetcher fetcher(store, plan, directory, threads, stop);
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const Manifest& manifest : chain) {
    for (const PayloadEntry& entry : manifest.payloads) total += entry.size;
  }
  for (const Manifest& manifest : chain) {
    if (stop.stop_requested()) return Unavailable("the fetch was aborted");
    SEGUE_RETURN_IF_ERROR(fetcher.Add(manifest));
    for (const PayloadEntry& entry : manifest.payloads) done += entry.size;
    if (progress) progress("fetch+stage", done, total);
  }
  return fetcher.Take();
}

Result<StagedDelta> StageFile(const Plan& plan, const std::string& path, std::uint64_t size,
                              const Sha256& sha256, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  PayloadEntry entry;
  entry.object = path;
  entry.size = size;
  entry.sha256 = sha256;
  SEGUE_RETURN_IF_ERROR(StagedDelta::VerifyPayload(entry, file.bytes()));
  const ByteSpan bytes = file.bytes();
  return StagedDelta::Stage(plan, std::span(&bytes, 1), ThreadsFor(size, threads));
}

}  // namespace segue
