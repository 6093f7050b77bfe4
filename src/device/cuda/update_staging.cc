// SPDX-License-Identifier: Apache-2.0
//
// What is taken, in which order, and what is given up first.
#include "device/cuda/update_staging.h"

#include <algorithm>
#include <string>
#include <utility>

namespace segue::cuda {
namespace {

constexpr GroupSizes kSizes = {32 << 20, 32 << 20};
// One warp decodes one chunk: the larger a group, the more of them at once.
constexpr GroupSizes kDecodeSizes = {32 << 20, 128 << 20};

std::string InPlaceOf(Decoder decoder, Decoder other) {
  return "decoder '" + std::string(DecoderName(decoder)) + "' in place of '" +
         std::string(DecoderName(other)) + "'";
}

// With the smallest slots, and compressed chunks on the host.
std::uint64_t LeastSize(std::span<const ChunkWork> batch, std::uint64_t chunk_size_max) {
  const auto sparse = std::ranges::count(batch, DeviceEncoding::kSparse, &ChunkWork::encoding);
  return GroupSlots::LeastSize(chunk_size_max) + LoadedBatch::SizeOf(batch) +
         2 * static_cast<std::uint64_t>(sparse) * sizeof(RowSums);
}

}  // namespace

Status UpdateStaging::Choose(Decoders& decoders, const std::string& name, WorkerPool& pool,
                             CUstream stream) {
  decoders_ = &decoders;
  pool_ = &pool;
  SEGUE_ASSIGN_OR_RETURN(decoder_, decoders.Choose(name, memory_, pool, stream));
  decoder_used_ = decoder_;
  wish_ = kSizes;
  return {};
}

void UpdateStaging::Reserve(std::uint64_t chunk_size_max) {
  chunk_size_max_ = std::max(chunk_size_max_.load(), chunk_size_max);
}

Status UpdateStaging::MakeSlots(const GroupSizes& wish) {
  const bool fits = asked_.host >= wish.host && asked_.device >= wish.device;
  if (slots_ && fits && slots_->room().host >= chunk_size_max_) return {};
  if (!slots_ && parked_ && fits && parked_room_.host >= chunk_size_max_) {
    Result<GroupSlots> again = GroupSlots::MakeAgain(memory_, parked_room_, parked_);
    if (again.ok()) {
      slots_ = std::move(again).value();
      return {};
    }
    if (again.status().code() != StatusCode::kResourceExhausted) return again.status();
  }
  slots_.reset();  // Not both at a time.
  parked_.reset();
  SEGUE_ASSIGN_OR_RETURN(slots_, GroupSlots::Make(memory_, chunk_size_max_, wish));
  asked_ = wish;
  return {};
}

void UpdateStaging::ParkSlots() {
  if (slots_ && loaded_count_ != 0) {
    parked_ = slots_->charge();
    parked_room_ = slots_->room();
  }
  slots_.reset();
  if (loaded_count_ == 0) parked_.reset();
}

void UpdateStaging::Unload() {
  loaded_.Forget();
  blocks_.Forget();
  loaded_count_ = 0;
  wish_ = kSizes;
}

void UpdateStaging::ReleaseBatch() {
  Unload();
  loaded_ = {};
  blocks_ = {};
  device_sums_ = {};
  host_sums_ = {};
  holds_more_ = false;
}

void UpdateStaging::Release() {
  ReleaseBatch();
  ParkSlots();
}

// What is planned goes where the decoder reads it; the engine writes to the slots itself.
Status UpdateStaging::StageBlocks(std::span<const ChunkWork> batch, CUstream stream,
                                  Decoder decoder) {
  const bool is_engine = decoder == Decoder::kEngine && !blocks_.items().empty();
  for (unsigned slot = 0; slot < 2 && is_engine; ++slot) {
    SEGUE_RETURN_IF_ERROR(CheckForEngine(context_->driver(), slots_->device(slot), "slots"));
  }
  return blocks_.Load(memory_, context_->device(), slots_->host(), stream, batch,
                      slots_->room().device);
}

// Compressed chunks where the GPU's decoder reads them. Where the memory of one that is not ours
// cannot be had, the multiprocessors decode.
Status UpdateStaging::LoadBlocks(std::span<const ChunkWork> batch, CUstream stream, Decoder decoder,
                                 bool smallest) {
  blocks_.Plan(decoders_->Use(decoder), batch, loaded_.dense(), *pool_);
  if (!smallest && !blocks_.items().empty()) wish_ = kDecodeSizes;
  SEGUE_RETURN_IF_ERROR(MakeSlots(wish_));
  decoder_used_ = decoder;
  const Status staged = StageBlocks(batch, stream, decoder);
  if (staged.ok() || decoder == Decoder::kMultiprocessors) return staged;
  memory_.Say(InPlaceOf(Decoder::kMultiprocessors, decoder), staged.message());
  blocks_ = {};
  return LoadBlocks(batch, stream, Decoder::kMultiprocessors, smallest);
}

Status UpdateStaging::Replace(std::span<const ChunkWork> batch, const Status& reason,
                              CUstream stream) {
  const Decoder refusing = decoder_used_;
  Status status;
  for (const Decoder decoder : {Decoder::kMultiprocessors, Decoder::kProcessor}) {
    memory_.Say(InPlaceOf(decoder, refusing), (status.ok() ? reason : status).message());
    blocks_ = {};
    // Within the slots that are there.
    status = LoadBlocks(batch, stream, decoder, /*smallest=*/true);
    if (status.code() != StatusCode::kResourceExhausted) break;
  }
  SEGUE_RETURN_IF_ERROR(status);
  SEGUE_CUDA_TRY(context_->driver(), cuStreamSynchronize, stream);
  return {};
}

void UpdateStaging::ReplaceInPause(const Status& reason) {
  memory_.Say(InPlaceOf(Decoder::kProcessor, decoder_used_) + ", in the pause", reason.message());
  decoder_used_ = Decoder::kProcessor;
}

// Slots come first, since any row may have to be scanned.
Status UpdateStaging::LoadWith(std::span<const ChunkWork> batch, CUstream stream, Decoder decoder,
                               bool smallest) {
  wish_ = smallest ? GroupSizes() : kSizes;
  SEGUE_RETURN_IF_ERROR(MakeSlots(wish_));
  SEGUE_RETURN_IF_ERROR(loaded_.Load(memory_, slots_->host(), stream, batch));
  const std::uint64_t sums_size = loaded_.sparse().size() * sizeof(RowSums);
  if (device_sums_.size < sums_size || host_sums_.size < sums_size) {
    device_sums_ = {};
    host_sums_ = {};
    SEGUE_ASSIGN_OR_RETURN(device_sums_, memory_.Device(sums_size));
    SEGUE_ASSIGN_OR_RETURN(host_sums_, memory_.Host(sums_size));
  }
  SEGUE_RETURN_IF_ERROR(LoadBlocks(batch, stream, decoder, smallest));
  SEGUE_CUDA_TRY(context_->driver(), cuStreamSynchronize, stream);
  loaded_count_ = batch.size();
  return {};
}

// What batches before have left goes first. Where the batch finds no room beside the slots, they
// become as small as can be; and where that is not enough, compressed chunks stay on the host, for
// the processor to decode.
Status UpdateStaging::Load(std::span<const ChunkWork> batch, CUstream stream) {
  Unload();
  if (batch.empty()) return {};
  Status status = LoadWith(batch, stream, decoder_, /*smallest=*/false);
  if (status.code() == StatusCode::kResourceExhausted && holds_more_) {
    Release();
    status = LoadWith(batch, stream, decoder_, /*smallest=*/false);
  }
  for (const Decoder decoder : {decoder_, Decoder::kProcessor}) {
    if (status.code() != StatusCode::kResourceExhausted) break;
    memory_.Say("staging in groups of one chunk, decoder: " + std::string(DecoderName(decoder)),
                status.message());
    Release();
    status = LoadWith(batch, stream, decoder, /*smallest=*/true);
    if (decoder_ == Decoder::kProcessor) break;
  }
  holds_more_ = status.ok();
  if (status.ok()) return {};
  Release();
  return memory_.Refusal(status, LeastSize(batch, chunk_size_max_),
                         "an update of " + std::to_string(batch.size()) + " chunks");
}

Status UpdateStaging::MakeSlots() {
  const Status made = MakeSlots(wish_);
  return made.ok() ? made : memory_.Refusal(made, least_size(), "a call on chunks");
}

}  // namespace segue::cuda
