// SPDX-License-Identifier: Apache-2.0
//
// segue diff: how much two checkpoints differ, where and in which bits, and what each profile would
// send. Looks at files alone; no store is needed.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>

#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/verbs.h"
#include "segue/inspect.h"

namespace segue::cli {
namespace {

constexpr int kBarWidth = 40;

double Density(const DiffClass& part) {
  return part.elements == 0
             ? 0
             : static_cast<double>(part.changed) / static_cast<double>(part.elements);
}

Json ToJson(const DiffClass& part) {
  return {{"tensors", part.tensors}, {"tensors_changed", part.tensors_changed},
          {"bytes", part.bytes},     {"elements", part.elements},
          {"changed", part.changed}, {"density", Density(part)}};
}

Json ToJson(const std::map<std::string, DiffClass>& parts) {
  Json json = Json::object();
  for (const auto& [name, part] : parts) json[name] = ToJson(part);
  return json;
}

Json ToJson(const DiffReport& report) {
  return {{"total", ToJson(report.total)},
          {"by_dtype", ToJson(report.by_dtype)},
          {"by_class", ToJson(report.by_class)},
          {"xor_bits", report.xor_bits},
          {"gaps", report.gaps},
          {"one_ulp", report.one_ulp},
          {"entropy_bound_bytes", report.entropy_bound_bytes},
          {"payload_bytes", report.payload_bytes}};
}

std::vector<std::string> Row(const std::string& name, const DiffClass& part) {
  return {Printable(name),
          fmt::format("{} of {}", HumanCount(part.tensors_changed), HumanCount(part.tensors)),
          HumanBytes(part.bytes),
          HumanCount(part.elements),
          HumanCount(part.changed),
          HumanShare(static_cast<double>(part.changed), static_cast<double>(part.elements))};
}

void PrintClasses(const std::string& head, const std::map<std::string, DiffClass>& parts) {
  Table table({head, "tensors changed", "size", "elements", "changed", "density"});
  for (const auto& [name, part] : parts) table.Row(Row(name, part));
  PrintLine("");
  table.Print();
}

// Buckets from the first to the last that holds anything.
template <typename Label>
void PrintHistogram(const std::string& head, std::span<const std::uint64_t> counts, Label label) {
  const auto used = [](std::uint64_t count) { return count != 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), used);
  const auto last = std::find_if(counts.rbegin(), counts.rend(), used).base();
  if (first == counts.end()) return;
  const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  Table table({head, "count", ""});
  for (auto bucket = first; bucket != last; ++bucket) {
    const std::string bar = TextBar(static_cast<double>(*bucket) / most, kBarWidth);
    table.Row({label(bucket - counts.begin()), HumanCount(*bucket),
               fmt::format("{:<{}}", bar, kBarWidth)});
  }
  PrintLine("");
  table.Print();
}

std::string GapLabel(std::ptrdiff_t power) {
  const std::uint64_t low = std::uint64_t{1} << power;
  return power == 0 ? "1" : fmt::format("{} - {}", HumanCount(low), HumanCount(2 * low - 1));
}

void PrintSizes(const DiffReport& report) {
  const auto whole = static_cast<double>(report.total.bytes);
  Table table({"profile", "would send", "of the checkpoint", "over the bound"});
  for (const auto& [name, size] : report.payload_bytes) {
    const auto bytes = static_cast<double>(size);
    const double bound = report.entropy_bound_bytes;
    table.Row({Printable(name), HumanBytes(size), HumanShare(bytes, whole),
               bound > 0 ? fmt::format("{:.2f} x", bytes / bound) : "-"});
  }
  table.Row({"(entropy bound)", HumanBytes(report.entropy_bound_bytes),
             HumanShare(report.entropy_bound_bytes, whole), ""});
  PrintLine("");
  table.Print();
}

void PrintText(const DiffReport& report) {
  const DiffClass& total = report.total;
  PrintLine(fmt::format(
      "{} of {} changed ({}), in {} of {} ({})", HumanCount(total.changed),
      Counted(total.elements, "element"),
      HumanShare(static_cast<double>(total.changed), static_cast<double>(total.elements)),
      HumanCount(total.tensors_changed), Counted(total.tensors, "tensor"),
      HumanBytes(total.bytes)));
  PrintClasses("dtype", report.by_dtype);
  PrintClasses("class", report.by_class);
  PrintHistogram("XOR bit", report.xor_bits,
                 [](std::ptrdiff_t bit) { return fmt::format("{}", bit); });
  PrintHistogram("gap (elements)", report.gaps, GapLabel);
  if (report.one_ulp > 0) {
    PrintLine("");
    PrintLine(fmt::format("  16-bit floats that moved by one unit in the last place: {}",
                          HumanCount(report.one_ulp)));
  }
  PrintSizes(report);
}

}  // namespace

Verb AddDiff(CLI::App& program) {
  CLI::App* const verb = program.add_subcommand("diff", "Show how two checkpoints differ");
  const auto options = std::make_shared<DiffOptions>();
  verb->add_option("BASE", options->base, "Checkpoint to start from")->required();
  verb->add_option("TARGET", options->target, "Checkpoint to compare with it")->required();
  AsSize(verb->add_option("--chunk-size", options->chunk_size, "Size of a chunk (1MiB)"));
  AddThreads(*verb, options->threads);
  const auto run = [options]() -> Result<Report> {
    const Result<DiffReport> report = WithProgress("diff", [&](Progress progress) {
      options->progress = std::move(progress);
      return Diff(*options);
    });
    if (!report.ok()) return report.status();
    return Report{
        ToJson(report.value()), [shown = report.value()] { PrintText(shown); }, {}, Status()};
  };
  return {verb, run};
}

}  // namespace segue::cli
