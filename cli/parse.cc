// SPDX-License-Identifier: Apache-2.0
//
// Parse: sizes and counts as people type them, to numbers. No locale, no octal, no silent rounding
// to zero or past the end.
#include <fmt/core.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "cli/output.h"

namespace segue::cli {
namespace {

constexpr double kSizeMax = 9.0e18;  // Below 2^63, where every sum of two sizes still fits.

// What a suffix multiplies by, or nothing where there is no such suffix.
std::optional<double> SuffixFactor(std::string_view suffix) {
  static constexpr std::string_view kLetters = "kmgt";
  std::string lower;
  for (char c : suffix) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (lower.empty() || lower == "b") return 1;
  const std::size_t power = kLetters.find(lower[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string rest = lower.substr(1);
  const auto exponent = static_cast<double>(power + 1);
  if (rest == "b") return std::pow(1000.0, exponent);
  if (rest.empty() || rest == "ib") return std::pow(1024.0, exponent);
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> ParseSize(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool number = error == std::errc() && std::isfinite(value) && value >= 0;
  const auto factor = SuffixFactor({rest, static_cast<std::size_t>(end - rest)});
  if (!number || !factor) {
    return InvalidArgument(
        fmt::format("expected a size such as 4096, 64MiB, 2GB or 1e6, found '{}'", text));
  }
  const double size = value * *factor;
  if (size > kSizeMax || size != std::floor(size)) {
    return InvalidArgument(
        fmt::format("expected a whole number of bytes, at most 9e18, found '{}'", text));
  }
  return static_cast<std::uint64_t>(size);
}

Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t max) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value > max) {
    return InvalidArgument(fmt::format("expected a number from 0 to {}, found '{}'", max, text));
  }
  return value;
}

}  // namespace segue::cli
