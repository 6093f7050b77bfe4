// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside as a tree. The parser that builds it makes of every bracket some sixty bytes
// and has no limit of its own, and of a key that is there twice it keeps either one. So nothing is
// built before the text has been gone through once: what must hold is that no text costs more
// memory than its caller's number of values allows, and that it means one thing. Checkpoints and
// manifests have a stricter reader (checkpoint/json.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "segue/status.h"

namespace segue {

namespace limits {

// Arrays and objects in each other; as in checkpoint/json.h.
inline constexpr std::size_t kJsonDepthMax = 128;
// Values in one text, arrays and objects among them: a request's body or a small file, an engine's
// answer. A listing's follow from the names that it may have.
inline constexpr std::uint64_t kJsonSmallValuesMax = 10'000;
inline constexpr std::uint64_t kJsonAnswerValuesMax = 100'000;

}  // namespace limits

// Corruption: not JSON. Unsupported: JSON that is nested deeper or has more values than is allowed,
// or an object with a key twice. Messages go on from the text's name: "is not JSON".
Status CheckJson(std::string_view text, std::uint64_t values_max);

// `Json`: nlohmann::json or nlohmann::ordered_json.
template <typename Json>
Result<Json> ParseJson(std::string_view text, std::uint64_t values_max) {
  SEGUE_RETURN_IF_ERROR(CheckJson(text, values_max));
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace segue
