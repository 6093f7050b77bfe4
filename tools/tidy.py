#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Style as a test: the rules of docs/style.md that a script can decide, over every tracked file.

Prints `path:line: rule: what to do`, one finding a line, and ends with 1 when there is any. What a
compiler or clang-tidy already says is not repeated here. Exceptions stand in one table below, each
with its reason; one that is no longer needed is a finding too.

  tools/tidy.py                       check the tree that holds this file
  tools/tidy.py --list-sources BUILD  the project's own sources in BUILD/compile_commands.json
"""

import ast
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
CPP = (".h", ".cc", ".cu", ".cuh")
PACKAGE_FILES = ("__init__.py", "__main__.py", "conftest.py")
TESTING = ("/testing.h", "/test_support.h")  # What the tests of a folder share.

# What each folder of src may include besides itself, include/segue and libraries.
FOLDERS = {
    "base": [],
    "codec": ["base"],
    "device": ["base", "codec"],
    "checkpoint": ["base"],
    "delta": ["base", "codec", "device", "checkpoint"],
    "store": ["base"],
    "sync": ["base", "codec", "device", "checkpoint", "delta", "store"],
    "interop": ["base", "codec", "device", "checkpoint", "delta", "store", "sync"],
    "live": ["base", "codec", "device", "checkpoint", "delta", "store", "sync"],
    "server": ["base", "codec", "device", "checkpoint", "delta", "store", "sync", "interop",
               "live"],
    "workload": ["base", "checkpoint"],
}
# Folders that see the public headers alone, which keeps that interface honest.
OUTSIDE = ("cli", "python", "examples")
CUDA_FOLDERS = ("src/device/cuda/", "tests/fake_cuda/")
CUDA_HEADER = re.compile(r"(cuda|nvcomp|cub/|thrust/|cooperative_groups)")
# Stricter than the direction of folders (the tests of a folder may).
FORBIDDEN_INCLUDES = {
    "codec": re.compile(r"base/(file|threads)\.h|thread|mutex|fstream"),
    "sync": re.compile(r"(sys/socket|netinet/in|arpa/inet|poll)\.h"),
}

# (where, pattern, what to use instead); `where` matches the path, tests are spared if it says so.
LIBRARY = r"src/(?!.*_(test|fuzz|benchmark)\.)"
BANNED = [
    ("", r"std::filesystem::exists\b", "use FileExists (base/file.h): it never throws"),
    ("", r"\bv?sprintf\s*\(|\bstrn?(cpy|cat)\s*\(", "use std::string or fmt::format"),
    ("", r"\bs?rand\s*\(|std::(mt19937|\w+_distribution)", "use Random (base/random.h): its "
     "numbers are the same on every machine"),
    ("", r"\bstd::thread\b(?!::)", "use std::jthread, which joins"),
    ("", r"std::(ranges::)?views::|std::ranges::(subrange|stable_partition|partition|unique|"
     r"remove(_if)?|rotate|search(_n)?|equal_range|find_end)\b", "clang 14, which fuzzes and "
     "tidies, does not compile these: use the form with iterators, std::erase or a loop"),
    ("", r"\bassert\s*\(", "use SEGUE_CHECK or SEGUE_DCHECK (base/check.h)"),
    ("", r"\b(ato(i|l|ll|f)|strto(l|ul|ll|ull|d))\s*\(|std::sto[a-z]+\s*\(", "use std::from_chars, "
     "and look at its result"),
    ("src/", r"\bthrow\b", "return a Status"),
    (r"(src|cli)/(?!.*_(test|fuzz|benchmark)\.)", r"\w*[Jj]son::(parse|accept|sax_parse|from_\w+)"
     r"\b", "use ParseJson (base/parse_json.h): it is bounded"),
    (LIBRARY, r"std::(cout|cerr|clog)\b|\bprintf\s*\(|\bputs\s*\(", "a library does not print"),
    (r"src/sync/(?!.*_test\.)", r"system_clock|random_device", "take wall clock and randomness "
     "through an interface, so that tests give their own"),
]
LEFTOVER = re.compile(r"\b(FIX" r"ME|XX" r"X|HA" r"CK)\b|\bTO" r"DO\b(?!\(#\d+\))")
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(work|root|home)/")
REGISTRY = re.compile(r"\b(pypi|pythonhosted|npmjs|crates)\.(org|com|io)\b|\b(deb|security|ftp)"
                      r"\.debian\.org\b|proxy\.golang\.org|repo\.maven\.")

# path -> {rule: reason}.
EXCEPTIONS = {
    "src/device/without_cuda/open_accelerator.cc": {"untested": "built where there is no toolkit"},
    "src/base/parse_json.h": {"banned": "what the others use"},
    "src/base/parse_json.cc": {"banned": "what the others use"},
    "cli/verb_inspect.cc": {"banned": "text that the library has just written"},
    "src/base/allocated.h": {"banned": "ends as the standard library's own allocations do"},
}


def is_cpp(path):
    return path.endswith(CPP)


def is_test(path):
    return path.startswith(("tests/", "bench/")) or path.endswith(TESTING) or bool(
        re.search(r"_(test|fuzz|benchmark)\.\w+$", path))


def code_only(text):
    """The text of a C++ file with comments, strings and characters blanked; lines stay in place."""
    literal = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])*'", re.DOTALL)
    return literal.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_includes(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            problem = include_problem(path, match.group(1) == '"', match.group(2))
            if problem:
                yield number, "include", problem


def include_problem(path, quoted, header):
    parts = path.split("/")
    target = header.split("/")[0] if "/" in header else ""
    if CUDA_HEADER.match(header) and not path.startswith(CUDA_FOLDERS):
        return f"CUDA headers belong to {CUDA_FOLDERS[0]}; '{header}' does not belong here"
    if path.startswith("include/"):
        standard = not quoted and re.fullmatch(r"[a-z_0-9]+", header)
        if not standard and target != "segue":
            return f"public headers include segue/ and the standard library, not '{header}'"
    elif parts[0] in OUTSIDE and target in FOLDERS:
        return f"{parts[0]}/ sees include/segue alone, not '{header}'"
    elif parts[0] == "src":
        return source_include_problem(parts[1], is_test(path), quoted, header, target)
    return None


def source_include_problem(folder, test, quoted, header, target):
    if folder not in FOLDERS:
        return f"src/{folder} is new: give it its place in FOLDERS (tools/tidy.py)"
    if quoted and not target:
        return f"write the path from src/: '{folder}/.../{header}'"
    if target in FOLDERS and target != folder and target not in FOLDERS[folder]:
        allowed = ", ".join(FOLDERS[folder]) or "no other folder"
        return f"src/{folder} may include {allowed}; '{header}' turns the direction around"
    forbidden = FORBIDDEN_INCLUDES.get(folder)
    if forbidden and not test and forbidden.fullmatch(header):
        return f"src/{folder} must not know '{header}': it comes in through an interface"
    return None


def quoted_includes(text):
    return re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)


def check_columns(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            yield number, "columns", f"{len(line)} columns; break the line at {COLUMNS_MAX}"


def check_head(path, text):
    mark = "#" if path.endswith(".py") else "//"
    lines = text.splitlines() + [""] * 3
    first = 1 if lines[0].startswith("#!") else 0
    if lines[first] != f"{mark} SPDX-License-Identifier: Apache-2.0":
        yield first + 1, "head", f"begin with '{mark} SPDX-License-Identifier: Apache-2.0'"
        return
    docstring = mark == "#" and re.match(r'r?"""\S', lines[first + 1] or lines[first + 2])
    paragraph = lines[first + 1] == mark and re.match(mark + r" \S", lines[first + 2])
    if not docstring and not paragraph:
        yield first + 2, "head", "say in a paragraph what this file is and why it exists"


def check_pragma(path, text):
    if path.endswith((".h", ".cuh")) and not re.search(r"^#pragma once$", text, re.MULTILINE):
        if not path.endswith("-inl.h"):
            yield 1, "pragma", "write '#pragma once' below the opening comment"


SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$")


def cpp_functions(code):
    """(line, count of lines) of every function body outside another; rough, knows no macros."""
    code = re.sub(r"^\s*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()), code,
                  flags=re.MULTILINE)
    begin = position = 0  # Where the declaration under the eye began; where we look.
    for match in re.finditer(r"[{};]", code):
        if match.start() < position:
            continue
        position = match.end()
        head = code[begin:match.start()]
        if match.group() != "{" or SCOPE.search(head):
            begin = position
            continue
        position = matching_brace(code, match.start())
        word = re.search(r"(\w+)\s*$", head)
        initialiser = word and "->" not in head and word.group(1) not in (
            "const", "noexcept", "override", "final", "mutable", "try")
        if initialiser or "(" not in head or head.count("(") > head.count(")"):
            continue
        start = begin + len(head) - len(head.lstrip())
        yield line_of(code, start), code.count("\n", match.start(), position) + 1
        begin = position


def matching_brace(code, offset):
    depth = 0
    for match in re.finditer(r"[{}]", code[offset:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return offset + match.end()
    return len(code)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def check_length(path, text):
    count = len(text.splitlines())
    if count > FILE_LINES_MAX:
        yield 1, "length", f"{count} lines in one file; split it (at most {FILE_LINES_MAX})"
    functions = cpp_functions(code_only(text)) if is_cpp(path) else python_functions(text)
    for line, size in functions:
        if size > FUNCTION_LINES_MAX:
            yield line, "length", f"{size} lines in one function; split it (at most " \
                f"{FUNCTION_LINES_MAX})"


def check_banned(path, text):
    code = code_only(text)
    for where, pattern, instead in BANNED:
        if re.match(where, path):
            for match in re.finditer(pattern, code):
                line = line_of(code, match.start())
                yield line, "banned", f"'{match.group().strip()}': {instead}"


def check_text(path, text):
    """What holds for every tracked text file, documents and scripts too."""
    for pattern, rule, advice in (
            (LEFTOVER, "leftover", "finish it, or file an issue and name it: TO" "DO(#123)"),
            (MACHINE_PATH, "place", "a path of one machine: write it relative to the repository"),
            (REGISTRY, "place", "name packages, not the registry's host")):
        for match in pattern.finditer(text):
            yield line_of(text, match.start()), rule, f"'{match.group()}': {advice}"


def check_tested(files):
    """Every source is covered by a test or fuzz target beside it: foo.cc by foo_test.cc, by one
    whose name it extends (foo_variant.cc), or by one that includes foo.cc's own header."""
    stems, headers = set(), {}
    for path, text in files.items():
        match = re.fullmatch(r"(src/.*)_(?:test|fuzz)\.(?:cc|cu)", path)
        if match:
            stems.add(match.group(1))
        if match or path.endswith(TESTING):
            headers.setdefault(path.rpartition("/")[0], set()).update(quoted_includes(text))
    for path, text in files.items():
        if not path.startswith("src/") or not path.endswith(".cc") or is_test(path):
            continue
        stem, folder = path[:-len(".cc")], path.rpartition("/")[0]
        named = any(stem == tested or stem.startswith(tested + "_") for tested in stems)
        own = quoted_includes(text)[:1]
        if not named and not headers.get(folder, set()).intersection(own):
            yield path, 1, "untested", f"write {stem}_test.cc or {stem}_fuzz.cc"


def check_names(files):
    """Modules of tests that pytest collects in one run have names of their own: it knows them by
    those. Examples run by themselves."""
    seen = {}
    for path in sorted(files):
        name = path.rpartition("/")[2]
        if not re.fullmatch(r"(tests|tools|python)/.*\.py", path) or name in PACKAGE_FILES:
            continue
        if "/tests/" in f"/{path}" or name.startswith("test_"):
            if name in seen:
                yield path, 1, "name", f"{seen[name]} has this name too: give it another"
            seen.setdefault(name, path)


def check_files(files, exceptions=None):
    """Findings over {path: text}, paths relative to the root, as lines to print."""
    exceptions = exceptions or {}
    found = [*check_tested(files), *check_names(files)]
    for path, text in files.items():
        checks = [check_text]
        if is_cpp(path):
            checks += [check_includes, check_columns, check_head, check_pragma, check_length,
                       check_banned]
        elif path.endswith(".py"):
            checks += [check_columns, check_head, check_length]
        found += [(path, *finding) for check in checks for finding in check(path, text)]
    used = {(path, rule) for path, _, rule, _ in found}
    for path, rules in exceptions.items():
        found += [(path, 1, "exception", f"'{rule}' is no longer needed: take it out of tidy.py")
                  for rule in rules if (path, rule) not in used]
    return [f"{path}:{line}: {rule}: {advice}" for path, line, rule, advice in sorted(found)
            if rule not in exceptions.get(path, {})]


def read_tree():
    """The text files that are tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
        stdout=subprocess.PIPE, check=True).stdout
    files = {}
    for name in sorted(filter(None, set(listed.decode().split("\0")))):
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            files[name] = content.decode("utf-8", errors="replace")
    return files


def list_sources(build):
    with open(ROOT / build / "compile_commands.json", encoding="utf-8") as commands:
        sources = {pathlib.Path(entry["file"]) for entry in json.load(commands)}
    folder = ROOT / build
    return sorted(str(source) for source in sources
                  if source.is_relative_to(ROOT) and not source.is_relative_to(folder))


def main(arguments):
    if arguments[:1] == ["--list-sources"] and len(arguments) == 2:
        print("\n".join(list_sources(arguments[1])))
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    files = read_tree()
    findings = check_files(files, EXCEPTIONS)
    print("\n".join(findings + [f"tidy: {len(files)} files, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
