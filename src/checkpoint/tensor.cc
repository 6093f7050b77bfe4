// SPDX-License-Identifier: Apache-2.0
//
// TensorSpec: sizes by checked arithmetic, and texts for messages.
#include "checkpoint/tensor.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/limits.h"

namespace segue {
namespace {

// The mathematical product: a dimension of 0 makes it 0 whatever the others are.
std::optional<std::uint64_t> ElementCount(const std::vector<std::uint64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  std::optional<std::uint64_t> count = 1;
  for (const std::uint64_t dimension : shape) {
    count = CheckedMultiply(*count, dimension);
    if (!count) return std::nullopt;
  }
  return count;
}

}  // namespace

Result<std::uint64_t> TensorSize(const TensorSpec& spec) {
  const auto fault = [&spec](const std::string& reason) {
    return InvalidArgument("tensor " + Quoted(spec.name) + ": " + DescribeTensor(spec) + " " +
                           reason);
  };
  const std::optional<std::uint64_t> count = ElementCount(spec.shape);
  if (!count) return fault("has more than 2^64 elements");
  const std::optional<std::uint64_t> bits = CheckedMultiply(*count, DtypeBits(spec.dtype));
  if (!bits) return fault("has more than 2^64 bits");
  if (*bits % 8 != 0) return fault("is " + std::to_string(*bits) + " bits, not whole bytes");
  if (*bits / 8 > limits::kTensorSizeMax) {
    return fault("is " + std::to_string(*bits / 8) + " bytes, the limit is " +
                 std::to_string(limits::kTensorSizeMax));
  }
  return *bits / 8;
}

std::string DescribeTensor(const TensorSpec& spec) {
  std::string text(DtypeName(spec.dtype));
  text += " [";
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(spec.shape[i]);
  }
  return text + "]";
}

std::string Quoted(std::string_view name) {
  constexpr std::size_t kShownMax = 200;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, kShownMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  text += "'";
  if (name.size() > kShownMax) text += "... (" + std::to_string(name.size()) + " bytes)";
  return text;
}

std::string QuotedNames(std::span<const std::string> names, std::size_t shown_max) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < shown_max; ++i) {
    text += (i == 0 ? "" : ", ") + Quoted(names[i]);
  }
  if (names.size() > shown_max) {
    text += " and " + std::to_string(names.size() - shown_max) + " more";
  }
  return text;
}

}  // namespace segue
