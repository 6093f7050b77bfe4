// SPDX-License-Identifier: Apache-2.0
//
// What engines do today: load all weights again, or patch with dense masks.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/threads.h"
#include "bench/measure.h"
#include "bench/zstd_stream.h"

namespace segue::bench {
namespace {

constexpr std::uint64_t kReadSize = 8ull << 20;

std::string TensorPath(const BenchRun& run, std::size_t tensor) {
  return JoinPath(run.directory, "tensor-" + std::to_string(tensor));
}

// Writes `bytes` without making them durable: the page cache is where they are to be.
Status WriteCached(const std::string& path, ByteSpan bytes) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  SEGUE_RETURN_IF_ERROR(file.Append(bytes));
  return file.Close();
}

Status RemoveTensorFiles(const BenchRun& run) {
  for (std::size_t i = 0; i < run.model.plan.tensors().size(); ++i) {
    SEGUE_RETURN_IF_ERROR(RemoveFile(TensorPath(run, i)));
  }
  return {};
}

// Reads [offset, offset + size) of the file straight over the live bytes: the fewest copies
// possible.
Status ReadOver(const std::string& path, std::uint64_t offset, MutableByteSpan live) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ErrnoStatus("open", path);
  Status status;
  while (!live.empty() && status.ok()) {
    const ssize_t count = pread(file, live.data(), live.size(), static_cast<off_t>(offset));
    if (count <= 0) {
      status = ErrnoStatus("read", path);
      break;
    }
    live = live.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  close(file);
  return status;
}

struct Piece {
  std::size_t tensor = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

std::vector<Piece> MakePieces(const Plan& plan) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    const std::uint64_t size = plan.tensors()[i].size;
    for (std::uint64_t offset = 0; offset < size; offset += kReadSize) {
      pieces.push_back({i, offset, std::min(kReadSize, size - offset)});
    }
  }
  return pieces;
}

Status CompressAll(const BenchRun& run) {
  const ModelView base = run.model.BaseView();
  const ModelView target = run.model.TargetView();
  const auto& tensors = run.model.plan.tensors();
  return ParallelFor(tensors.size(), run.threads, [&](std::size_t i, unsigned) -> Status {
    SEGUE_ASSIGN_OR_RETURN(const ByteVector frame,
                           CompressMask(ByteSpan(base.Tensor(i), tensors[i].size),
                                        ByteSpan(target.Tensor(i), tensors[i].size)));
    return WriteCached(TensorPath(run, i), frame);
  });
}

Result<std::vector<ByteVector>> FetchAll(const BenchRun& run) {
  std::vector<ByteVector> frames;
  for (std::size_t i = 0; i < run.model.plan.tensors().size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(ByteVector frame, ReadFile(TensorPath(run, i), ~0ull >> 1));
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace

Result<BaselineFigures> MeasureFullReload(BenchRun& run) {
  const Plan& plan = run.model.plan;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    const ByteSpan bytes(run.model.TargetView().Tensor(i), plan.tensors()[i].size);
    SEGUE_RETURN_IF_ERROR(WriteCached(TensorPath(run, i), bytes));
  }
  const std::vector<Piece> pieces = MakePieces(plan);
  const auto read = [&](std::size_t i, unsigned) {
    const Piece& piece = pieces[i];
    return ReadOver(TensorPath(run, piece.tensor), piece.offset,
                    run.model.LiveTensor(piece.tensor).subspan(piece.offset, piece.size));
  };
  std::vector<double> pauses;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    run.Report("full_reload", repeat);
    run.model.Restore(run.threads);
    Status status;
    pauses.push_back(Seconds([&] { status = ParallelFor(pieces.size(), run.threads, read); }));
    SEGUE_RETURN_IF_ERROR(status);
    run.Verify();
  }
  SEGUE_RETURN_IF_ERROR(RemoveTensorFiles(run));
  return BaselineFigures{plan.model_size(), Median(pauses), Median(pauses)};
}

Result<BaselineFigures> MeasureDiskDelta(BenchRun& run) {
  std::vector<double> totals;
  std::vector<double> pauses;
  BaselineFigures figures;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    run.Report("disk_delta", repeat);
    run.model.Restore(run.threads);
    Status status;
    Result<std::vector<ByteVector>> frames = std::vector<ByteVector>();
    const double before = Seconds([&] {
      status = CompressAll(run);
      if (status.ok()) frames = FetchAll(run);
    });
    SEGUE_RETURN_IF_ERROR(status);
    if (!frames.ok()) return frames.status();
    const auto apply = [&](std::size_t i, unsigned) {
      return ApplyMask((*frames)[i], run.model.LiveTensor(i));
    };
    pauses.push_back(Seconds([&] { status = ParallelFor(frames->size(), run.threads, apply); }));
    SEGUE_RETURN_IF_ERROR(status);
    totals.push_back(before + pauses.back());
    run.Verify();
    figures.payload_bytes = 0;
    for (const ByteVector& frame : *frames) figures.payload_bytes += frame.size();
  }
  SEGUE_RETURN_IF_ERROR(RemoveTensorFiles(run));
  figures.total_s = Median(totals);
  figures.pause_s = Median(pauses);
  return figures;
}

}  // namespace segue::bench
