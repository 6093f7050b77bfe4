// SPDX-License-Identifier: Apache-2.0
//
// Output: numbers for people, tables, JSON and errors.
#include "cli/output.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace segue::cli {
namespace {

// Three digits that count, never an exponent.
std::string ThreeDigits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  if (size >= 0.9995 || size == 0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

void Write(std::FILE* file, std::string_view text) {
  // What this returns is remembered by the stream; main() asks it.
  (void)std::fwrite(text.data(), 1, text.size(), file);
}

// Columns on the screen: bytes that do not continue a UTF-8 character.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

// The UTF-8 character at the beginning of `text`; size 0 where there is none.
struct Character {
  unsigned point = 0;
  std::size_t size = 0;
};

Character FirstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const std::size_t size = lead < 0xc2   ? 0
                           : lead < 0xe0 ? 2
                           : lead < 0xf0 ? 3
                           : lead < 0xf5 ? 4
                                         : 0;
  if (size == 0 || text.size() < size) return {};
  unsigned point = lead & (0xffU >> (size + 1));
  for (const char c : text.substr(1, size - 1)) {
    if ((static_cast<unsigned char>(c) & 0xc0U) != 0x80) return {};
    point = point << 6 | (static_cast<unsigned char>(c) & 0x3fU);
  }
  const bool overlong = (size == 3 && point < 0x800) || (size == 4 && point < 0x10000);
  return overlong ? Character() : Character{point, size};
}

// C0 and C1 controls, which terminals obey, and the marks that turn the direction of text, so that
// one name looks like another.
bool Steers(unsigned point) {
  return point < 0x20 || (point >= 0x7f && point <= 0x9f) || point == 0x61c || point == 0x200e ||
         point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
         (point >= 0x2066 && point <= 0x2069);
}

}  // namespace

std::string HumanBytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return ThreeDigits(bytes) + " " + kUnits.at(unit);
}

std::string HumanSeconds(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 0.9995e-3) return ThreeDigits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return ThreeDigits(seconds * 1e3) + " ms";
  return ThreeDigits(seconds) + " s";
}

std::string HumanCount(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string Counted(std::uint64_t count, std::string_view noun) {
  return HumanCount(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string HumanShare(double part, double whole) {
  if (whole <= 0) return "-";
  return ThreeDigits(100 * part / whole) + " %";
}

std::string TextBar(double share, int width) {
  const double columns = std::clamp(share, 0.0, 1.0) * width;
  // What is there at all is shown.
  const int filled = columns > 0 ? std::max(1, static_cast<int>(std::lround(columns))) : 0;
  return std::string(static_cast<std::size_t>(filled), '#');
}

std::string Printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const std::size_t size = std::max<std::size_t>(1, character.size);
    if (character.size == 0) {  // No UTF-8.
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (!Steers(character.point)) {
      shown += text.substr(0, size);
    } else if (size == 1) {
      shown += fmt::format("\\x{:02x}", character.point);
    } else {
      shown += fmt::format("\\u{:04x}", character.point);
    }
    text.remove_prefix(size);
  }
  return shown;
}

void Table::Print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  for (const auto& row : rows_) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      line += i == 0 ? " " + row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    PrintLine(line);
  }
}

void PrintLine(std::string_view line) {
  Write(stdout, line);
  Write(stdout, "\n");
}

// Bytes that are not UTF-8 (paths may hold any) are replaced, where the library would throw.
void PrintJson(const Json& json) {
  PrintLine(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void PrintJsonIndented(const Json& json) {
  PrintLine(json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void PrintWarnings(std::string_view verb, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    Write(stderr, fmt::format("segue {}: warning: {}\n", verb, Printable(warning)));
  }
}

void PrintNote(std::string_view verb, std::string_view note) {
  Write(stderr, fmt::format("segue {}: {}\n", verb, Printable(note)));
}

void PrintError(std::string_view verb, const Status& status) {
  const std::string program = verb.empty() ? "segue" : fmt::format("segue {}", verb);
  const std::string_view code = StatusCodeName(status.code());
  Write(stderr, fmt::format("{}: {} ({})\n", program, Printable(status.message()), code));
}

Json ErrorToJson(const Status& status) {
  return {{"code", StatusCodeName(status.code())}, {"message", status.message()}};
}

int ExitCode(StatusCode code) {
  // 1 is left out: it is what the loader, the shell and sanitizers use for their own failures.
  return code == StatusCode::kOk ? 0 : static_cast<int>(code) + 1;
}

}  // namespace segue::cli
