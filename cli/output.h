// SPDX-License-Identifier: Apache-2.0
//
// Output: how the command line program shows things. Results go to stdout, as tables of text or as
// one JSON object; warnings and errors go to stderr, one line each. Names from files are shown with
// their control characters escaped, so that a checkpoint cannot steer the terminal.
//
// Nothing here looks at the outcome of a write: main() asks stdout once, at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "segue/status.h"

namespace segue::cli {

// Keeps the order in which keys are written.
using Json = nlohmann::ordered_json;

// Decimal units, as bandwidths and payloads are given: "999 B", "1.52 MB".
std::string HumanBytes(double bytes);
inline std::string HumanBytes(std::uint64_t bytes) {
  return HumanBytes(static_cast<double>(bytes));
}
// "12.3 us", "4.56 ms", "1.23 s".
std::string HumanSeconds(double seconds);
// "1,234,567".
std::string HumanCount(std::uint64_t count);
// "1 element", "2,000 elements": `noun` as for one.
std::string Counted(std::uint64_t count, std::string_view noun);
// "0.085 %", with three digits that count.
std::string HumanShare(double part, double whole);
// A bar of `width` columns at most, for a share of 0 to 1.
std::string TextBar(double share, int width);
// `text` with controls, marks that turn the direction of text, and what is no UTF-8 as \xNN or
// \uNNNN.
std::string Printable(std::string_view text);

// Rows of text under column heads; the first column is flush left, the others flush right.
class Table {
 public:
  Table(std::initializer_list<std::string> heads) : rows_{heads} {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Every line begins with two spaces.
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// To stdout. PrintLine adds the end of line.
void PrintLine(std::string_view line);
void PrintJson(const Json& json);
void PrintJsonIndented(const Json& json);

// To stderr: "segue VERB: warning: ...".
void PrintWarnings(std::string_view verb, const std::vector<std::string>& warnings);
// To stderr: "segue VERB: NOTE".
void PrintNote(std::string_view verb, std::string_view note);
// To stderr: "segue VERB: MESSAGE (CODE)".
void PrintError(std::string_view verb, const Status& status);
// {"code": "not_found", "message": "..."}.
Json ErrorToJson(const Status& status);

// The program's exit code: 0 or one for each StatusCode, listed by `segue --help`.
int ExitCode(StatusCode code);

// "64MiB", "64M", "2GB", "1.5GiB", "1e6" or plain bytes. K, M, G and T alone are powers of 1024.
Result<std::uint64_t> ParseSize(std::string_view text);
// Decimal digits alone, at most `max`.
Result<std::uint64_t> ParseCount(std::string_view text, std::uint64_t max);

}  // namespace segue::cli
