// SPDX-License-Identifier: Apache-2.0
//
// Plan: made from specs, serialised canonically, parsed strictly. Make() holds every rule, so a
// plan that was parsed obeys the same ones as a plan that was made (docs/format.md, "Plan").
#include "checkpoint/plan.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace segue {
namespace {

constexpr std::string_view kPlanMagic = "SEGUEPLN";
constexpr std::uint32_t kPlanFormatVersion = 1;
constexpr std::uint64_t kPlanHeadSize = 24;
// dtype, rank, name_size and a name of one byte.
constexpr std::uint64_t kRecordSizeMin = 5;
constexpr std::uint64_t kModelSizeMax = (1ull << 63) - 1;

Status CheckChunkSize(std::uint64_t chunk_size) {
  if (std::has_single_bit(chunk_size) && chunk_size >= limits::kChunkSizeMin &&
      chunk_size <= limits::kChunkSizeMax) {
    return {};
  }
  return InvalidArgument("chunk size " + std::to_string(chunk_size) +
                         " is not a power of two from " + std::to_string(limits::kChunkSizeMin) +
                         " to " + std::to_string(limits::kChunkSizeMax));
}

Status CheckSpec(const TensorSpec& spec) {
  const auto fault = [&spec](const std::string& reason) {
    return InvalidArgument("tensor " + Quoted(spec.name) + ": " + reason);
  };
  if (spec.name.empty()) return fault("the name is empty");
  if (spec.name.size() > limits::kTensorNameSizeMax) {
    return fault("the name has " + std::to_string(spec.name.size()) + " bytes, the limit is " +
                 std::to_string(limits::kTensorNameSizeMax));
  }
  if (!simdjson::validate_utf8(spec.name)) return fault("the name is not UTF-8");
  if (spec.shape.size() > limits::kTensorRankMax) {
    return fault("has " + std::to_string(spec.shape.size()) + " dimensions, the limit is " +
                 std::to_string(limits::kTensorRankMax));
  }
  return {};
}

// Fills a buffer of known size front to back.
class ByteWriter {
 public:
  explicit ByteWriter(MutableByteSpan target) : target_(target) {}

  template <typename T>
  void Write(T value) {
    WriteBytes(std::as_bytes(std::span(&value, 1)));
  }
  void WriteBytes(ByteSpan bytes) {
    SEGUE_CHECK(bytes.size() <= target_.size());
    std::copy(bytes.begin(), bytes.end(), target_.begin());
    target_ = target_.subspan(bytes.size());
  }
  bool full() const { return target_.empty(); }

 private:
  MutableByteSpan target_;
};

std::size_t RecordSize(const TensorSpec& spec) {
  return 4 + 8 * spec.shape.size() + spec.name.size();
}

ByteVector Serialise(const std::vector<PlanTensor>& tensors, std::uint64_t chunk_size) {
  std::size_t size = kPlanHeadSize;
  for (const PlanTensor& tensor : tensors) size += RecordSize(tensor.spec);
  ByteVector object(size);
  ByteWriter writer(object);
  writer.WriteBytes(AsBytes(kPlanMagic));
  writer.Write(kPlanFormatVersion);
  writer.Write(static_cast<std::uint32_t>(std::countr_zero(chunk_size)));
  writer.Write(static_cast<std::uint64_t>(tensors.size()));
  for (const PlanTensor& tensor : tensors) {
    const TensorSpec& spec = tensor.spec;
    writer.Write(static_cast<std::uint8_t>(spec.dtype));
    writer.Write(static_cast<std::uint8_t>(spec.shape.size()));
    writer.Write(static_cast<std::uint16_t>(spec.name.size()));
    writer.WriteBytes(std::as_bytes(std::span(spec.shape)));
    writer.WriteBytes(AsBytes(spec.name));
  }
  SEGUE_CHECK(writer.full());
  return object;
}

Result<TensorSpec> ReadRecord(ByteReader& reader, std::uint64_t number) {
  const auto code = reader.Read<std::uint8_t>();
  const auto rank = reader.Read<std::uint8_t>();
  const auto name_size = reader.Read<std::uint16_t>();
  const std::string record = "plan: tensor number " + std::to_string(number);
  if (reader.ok() && rank > limits::kTensorRankMax) {
    return Corruption(record + " has rank " + std::to_string(rank) + ", the limit is " +
                      std::to_string(limits::kTensorRankMax));
  }
  TensorSpec spec;
  spec.shape.reserve(rank);
  for (unsigned i = 0; i < rank; ++i) spec.shape.push_back(reader.Read<std::uint64_t>());
  spec.name = AsText(reader.ReadBytes(name_size));
  if (!reader.ok()) return Corruption(record + ": the object ends inside its record");
  const std::optional<Dtype> dtype = DtypeFromCode(code);
  if (!dtype) return Unsupported(record + " has the unknown dtype code " + std::to_string(code));
  spec.dtype = *dtype;
  return spec;
}

}  // namespace

Result<Plan> Plan::Make(std::vector<TensorSpec> tensors, std::uint64_t chunk_size) {
  SEGUE_RETURN_IF_ERROR(CheckChunkSize(chunk_size));
  if (tensors.size() > limits::kTensorCountMax) {
    return ResourceExhausted("a plan of " + std::to_string(tensors.size()) +
                             " tensors, the limit is " + std::to_string(limits::kTensorCountMax));
  }
  Plan plan;
  plan.chunk_size_ = chunk_size;
  plan.tensors_.reserve(tensors.size());
  for (TensorSpec& spec : tensors) SEGUE_RETURN_IF_ERROR(plan.Add(std::move(spec)));
  plan.object_ = Serialise(plan.tensors_, chunk_size);
  if (plan.object_.size() > limits::kPlanSizeMax) {
    return ResourceExhausted("the plan has " + std::to_string(plan.object_.size()) +
                             " bytes, the limit is " + std::to_string(limits::kPlanSizeMax));
  }
  plan.digest_ = HashSha256(plan.object_);
  return plan;
}

Status Plan::Add(TensorSpec spec) {
  SEGUE_RETURN_IF_ERROR(CheckSpec(spec));
  if (!tensors_.empty() && tensors_.back().spec.name >= spec.name) {
    return InvalidArgument("tensor " + Quoted(spec.name) + ": is not after " +
                           Quoted(tensors_.back().spec.name) + " in the order of names");
  }
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, TensorSize(spec));
  // Sizes are at most 2^46 and counts bounded, so neither sum wraps before it is compared.
  model_size_ += size;
  const std::uint64_t first_chunk = chunk_count_;
  const std::uint64_t chunk_count = DivideUp(size, chunk_size_);
  chunk_count_ += chunk_count;
  if (model_size_ > kModelSizeMax) {
    return ResourceExhausted("tensor " + Quoted(spec.name) + ": takes the model over 2^63 bytes");
  }
  if (chunk_count_ > limits::kChunkCountMax) {
    return ResourceExhausted("tensor " + Quoted(spec.name) + ": takes the plan over " +
                             std::to_string(limits::kChunkCountMax) + " chunks of " +
                             std::to_string(chunk_size_) + " bytes");
  }
  tensors_.push_back({std::move(spec), size, first_chunk, chunk_count});
  return {};
}

Result<Plan> Plan::FromCheckpoint(const Checkpoint& checkpoint, std::uint64_t chunk_size) {
  std::vector<TensorSpec> specs;
  specs.reserve(checkpoint.tensors().size());
  for (const CheckpointTensor& tensor : checkpoint.tensors()) specs.push_back(tensor.spec);
  return Make(std::move(specs), chunk_size);
}

Result<Plan> Plan::Parse(ByteSpan object) {
  if (object.size() > limits::kPlanSizeMax) {
    return ResourceExhausted("the plan has " + std::to_string(object.size()) +
                             " bytes, the limit is " + std::to_string(limits::kPlanSizeMax));
  }
  ByteReader reader(object);
  if (AsText(reader.ReadBytes(kPlanMagic.size())) != kPlanMagic) {
    return Corruption("plan: does not begin with " + std::string(kPlanMagic));
  }
  const auto version = reader.Read<std::uint32_t>();
  const auto chunk_size_log2 = reader.Read<std::uint32_t>();
  const auto count = reader.Read<std::uint64_t>();
  if (!reader.ok()) return Corruption("plan: the object ends inside its head");
  if (version != kPlanFormatVersion) {
    return Unsupported("plan: format version " + std::to_string(version) + ", expected 1");
  }
  if (chunk_size_log2 >= 64) {
    return Corruption("plan: chunk_size_log2 is " + std::to_string(chunk_size_log2) +
                      ", the limit is 24");
  }
  if (count > limits::kTensorCountMax || count > reader.remaining() / kRecordSizeMin) {
    return Corruption("plan: claims " + std::to_string(count) + " tensors in " +
                      std::to_string(reader.remaining()) + " bytes");
  }
  std::vector<TensorSpec> specs;
  specs.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    SEGUE_ASSIGN_OR_RETURN(TensorSpec spec, ReadRecord(reader, i));
    specs.push_back(std::move(spec));
  }
  if (reader.remaining() != 0) {
    return Corruption("plan: " + std::to_string(reader.remaining()) +
                      " bytes lie past the last tensor");
  }
  Result<Plan> plan = Make(std::move(specs), 1ull << chunk_size_log2);
  if (!plan.ok() && plan.status().code() == StatusCode::kInvalidArgument) {
    return Corruption("plan: " + plan.status().message());
  }
  return plan;
}

ChunkPlace Plan::Chunk(std::uint64_t chunk) const {
  SEGUE_CHECK(chunk < chunk_count_);
  // The last tensor that begins at or before the chunk: tensors without chunks share their number
  // with the one behind them and so are passed over.
  const auto after = std::upper_bound(
      tensors_.begin(), tensors_.end(), chunk,
      [](std::uint64_t value, const PlanTensor& tensor) { return value < tensor.first_chunk; });
  const PlanTensor& tensor = *(after - 1);
  ChunkPlace place;
  place.tensor = static_cast<std::uint32_t>(after - 1 - tensors_.begin());
  place.offset = (chunk - tensor.first_chunk) * chunk_size_;
  place.size = std::min(chunk_size_, tensor.size - place.offset);
  place.width = DtypeWidth(tensor.spec.dtype);
  return place;
}

}  // namespace segue
