// SPDX-License-Identifier: Apache-2.0
//
// Reading PTX: one kernel after the other, statement by statement. Names become numbers here:
// registers, constants and parameters of the kernel are all numbers in one register file.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "ptx/operations.h"
#include "ptx/program.h"

namespace ptx {
namespace {

using std::string;
using std::string_view;

string_view Trimmed(string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Cut at commas and bars that stand outside of braces.
std::vector<string> Operands(string_view text) {
  std::vector<string> operands;
  string operand;
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (depth == 0 && (c == ',' || c == '|')) {
      operands.emplace_back(Trimmed(operand));
      operand.clear();
    } else {
      operand += c;
    }
  }
  if (!Trimmed(operand).empty()) operands.emplace_back(Trimmed(operand));
  return operands;
}

std::int64_t Number(string_view text) {
  std::int64_t value = 0;
  const bool is_hexadecimal = text.starts_with("0x");
  if (is_hexadecimal) text.remove_prefix(2);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Fault("operand '" + string(text) + "' is not understood");
  }
  return value;
}

string Without(string name, const string& part) {
  const auto at = name.find(part);
  return at == string::npos ? name : name.erase(at, part.size());
}

// Instructions of which nothing is a result.
bool HasNoResult(string_view name) {
  return name.starts_with("st.") || name.starts_with("bar.") || name == "bra" || name == "ret";
}

class KernelReader {
 public:
  explicit KernelReader(string name) { kernel_.name = std::move(name); }

  void AddParameter(const string& name) { kernel_.parameters.push_back(NumberOf(name)); }

  // `.shared .align 16 .b8 NAME[SIZE]`: the name is an address in the block's shared memory.
  void AddShared(string_view text) {
    const auto bracket = text.find('[');
    const auto space = text.find_last_of(" \t", bracket);
    const string name(text.substr(space + 1, bracket - space - 1));
    kernel_.shared_size = (kernel_.shared_size + 15) / 16 * 16;
    AddConstant(NumberOf(name), kernel_.shared_size);
    kernel_.shared_size +=
        static_cast<std::size_t>(Number(text.substr(bracket + 1, text.find(']') - bracket - 1)));
  }

  // `.maxntid X, Y, Z`: no driver launches larger blocks.
  void SetThreadsMax(string_view text) {
    kernel_.threads_max = 1;
    for (const string& count : Operands(text.substr(text.find_first_of(" \t")))) {
      kernel_.threads_max *= static_cast<std::uint64_t>(Number(count));
    }
  }

  void AddLabel(const string& name) {
    labels_[name] = static_cast<std::uint32_t>(kernel_.code.size());
  }

  void AddInstruction(string_view text) {
    Instruction instruction;
    instruction.text = string(text);
    if (text.starts_with('@')) {
      const auto space = text.find_first_of(" \t");
      instruction.is_predicated = true;
      instruction.is_negated = text[1] == '!';
      const std::size_t skip = instruction.is_negated ? 2 : 1;
      instruction.predicate = NumberOf(string(text.substr(skip, space - skip)));
      text = Trimmed(text.substr(space));
    }
    const auto space = text.find_first_of(" \t");
    string name = Without(Without(string(text.substr(0, space)), ".global"), ".uni");
    instruction.operation = &FindOperation(name);
    if (space != string_view::npos) Read(instruction, name, Operands(text.substr(space)));
    kernel_.code.push_back(std::move(instruction));
  }

  Kernel Take() {
    for (const auto& [number, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw Fault("no label '" + label + "'");
      kernel_.code[number].target = found->second;
    }
    kernel_.register_count = static_cast<std::uint32_t>(numbers_.size());
    return std::move(kernel_);
  }

 private:
  void Read(Instruction& instruction, const string& name, std::vector<string> operands) {
    if (name == "bra") {
      branches_.emplace_back(kernel_.code.size(), operands[0]);
      return;
    }
    if (instruction.operation->step == Step::kCollective) {
      instruction.member_mask = NumberOf(operands.back());
      operands.pop_back();
    }
    if (instruction.operation->step == Step::kBarrier) {
      // One barrier a block, which all of its threads come to.
      if (operands != std::vector<string>{"0"}) NotUnderstood(instruction);
      operands.clear();
    }
    std::size_t results = HasNoResult(name) ? 0 : 1;
    if (instruction.text.find('|') != string::npos) {
      // "to|predicate" of a shuffle.
      if (instruction.operation->step != Step::kCollective) NotUnderstood(instruction);
      results = 2;
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      auto& list = k < results ? instruction.to : instruction.from;
      AddOperand(instruction, operands[k], list);
    }
    // A parameter is read as a whole.
    if (name.starts_with("ld.param") && instruction.offset != 0) NotUnderstood(instruction);
  }

  [[noreturn]] static void NotUnderstood(const Instruction& instruction) {
    throw Fault("instruction '" + instruction.text + "' is not understood");
  }

  // A register, a constant, `{a, b}` or `[address+offset]`.
  void AddOperand(Instruction& instruction, const string& text, std::vector<std::uint32_t>& list) {
    if (text.starts_with('{')) {
      for (const string& part : Operands(text.substr(1, text.size() - 2))) {
        list.push_back(NumberOf(part));
      }
    } else if (text.starts_with('[')) {
      const auto plus = text.find('+');
      list.push_back(NumberOf(text.substr(1, std::min(plus, text.size() - 1) - 1)));
      if (plus == string::npos) return;
      instruction.offset = Number(string_view(text).substr(plus + 1, text.size() - plus - 2));
    } else {
      list.push_back(NumberOf(text));
    }
  }

  std::uint32_t NumberOf(const string& name) {
    const auto [found, is_new] =
        numbers_.emplace(name, static_cast<std::uint32_t>(numbers_.size()));
    if (!is_new) return found->second;
    if (name.starts_with('-') || (name[0] >= '0' && name[0] <= '9')) {
      AddConstant(found->second, static_cast<std::uint64_t>(Number(name)));
    } else if (name.starts_with('%') && name.find('.') != string::npos) {
      kernel_.special[name] = found->second;
    }
    return found->second;
  }

  void AddConstant(std::uint32_t number, std::uint64_t value) {
    kernel_.constants.emplace_back(number, value);
  }

  Kernel kernel_;
  std::map<string, std::uint32_t> numbers_;
  std::map<string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, string>> branches_;
};

// `{ .reg ...; instruction; }`: a scope of one line, whose names nobody else uses.
std::vector<string_view> Scope(string_view line) {
  std::vector<string_view> instructions;
  line = line.substr(1, line.size() - 2);
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(';', at), line.size());
    const string_view statement = Trimmed(line.substr(at, end - at));
    if (!statement.empty() && !statement.starts_with('.')) instructions.push_back(statement);
    at = end + 1;
  }
  return instructions;
}

// Lines without comments; a statement that goes over several lines becomes one.
std::vector<string> Statements(const string& text) {
  std::vector<string> statements;
  string statement;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    string_view line = string_view(text).substr(at, end - at);
    at = end + 1;
    line = Trimmed(line.substr(0, line.find("//")));
    if (line.empty()) continue;
    statement += line;
    const char last = line.back();
    if (last == ';' || last == ':' || last == '(' || last == ')' || last == '{' || last == '}' ||
        last == ',' || line.starts_with('.')) {
      statements.push_back(std::move(statement));
      statement.clear();
    } else {
      statement += ' ';
    }
  }
  return statements;
}

string_view LastWord(string_view text) {
  while (!text.empty() && (text.back() == ',' || text.back() == '(')) text.remove_suffix(1);
  return text.substr(text.find_last_of(" \t") + 1);
}

// Whether a directive says nothing that a machine of this kind must know.
bool IsForOthers(string_view line) {
  static constexpr string_view kNames[] = {
      ".version", ".target", ".address_size", ".minnctapersm", ".reg", ".pragma", ")"};
  return line == "{" ||
         std::ranges::any_of(kNames, [&](string_view name) { return line.starts_with(name); });
}

}  // namespace

std::map<string, Kernel> Parse(const string& text) {
  std::map<string, Kernel> kernels;
  std::optional<KernelReader> reader;
  string name;
  for (const string& line : Statements(text)) {
    if (line.starts_with(".visible .entry")) {
      name = LastWord(line);
      reader.emplace(name);
    } else if (line == "}" && reader) {
      kernels[name] = reader->Take();
      reader.reset();
    } else if (line.starts_with(".param") && reader) {
      reader->AddParameter(string(LastWord(line)));
    } else if (line.starts_with(".shared") && reader) {
      reader->AddShared(line);
    } else if (line.starts_with(".maxntid") && reader) {
      reader->SetThreadsMax(line);
    } else if (IsForOthers(line)) {
      continue;
    } else if (line.ends_with(':') && reader) {
      reader->AddLabel(line.substr(0, line.size() - 1));
    } else if (line.starts_with('{') && line.ends_with('}') && reader) {
      for (const string_view instruction : Scope(line)) reader->AddInstruction(instruction);
    } else if (line.ends_with(';') && reader) {
      reader->AddInstruction(Trimmed(string_view(line).substr(0, line.size() - 1)));
    } else {
      throw Fault("line '" + line + "' is not understood");
    }
  }
  return kernels;
}

}  // namespace ptx
