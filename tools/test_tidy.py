# SPDX-License-Identifier: Apache-2.0
"""The tree keeps its style, and tidy.py finds what it should: each rule has an input that breaks it
and a close one that does not."""

import subprocess
import sys

import pytest

import tidy

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEAD = SPDX + "//\n// What this is and why.\n"
PYTHON_HEAD = '# SPDX-License-Identifier: Apache-2.0\n"""What this is."""\n'
SLASH = "/"


def findings(path, text, **others):
    """Rules (with lines) that `text` at `path` breaks, tests beside it or not."""
    files = {path: text, **others}
    return [line.split(": ")[:2] for line in tidy.check_files(files) if ": untested: " not in line]


def rules(path, text):
    return [rule for _, rule in findings(path, text)]


def test_the_tree_is_tidy():
    found = tidy.check_files(tidy.read_tree(), tidy.EXCEPTIONS)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_a_clean_file_has_no_findings():
    text = HEAD + '#pragma once\n#include <span>\n#include "base/bytes.h"\nint F() { return 1; }\n'
    assert not rules("src/codec/a.h", text)
    assert not rules("tools/a.py", PYTHON_HEAD + "x = 1\n")


@pytest.mark.parametrize("path, include", [
    ("src/base/a.cc", '"codec/sparse.h"'),
    ("src/codec/a.cc", '"base/file.h"'),
    ("src/codec/a.cc", "<thread>"),
    ("src/checkpoint/a.cc", '"codec/sparse.h"'),
    ("src/checkpoint/a.cc", '"device/device.h"'),
    ("src/device/host/a.cc", '"delta/format.h"'),
    ("src/delta/a.cc", '"store/store.h"'),
    ("src/store/a.cc", '"checkpoint/plan.h"'),
    ("src/workload/a.cc", '"delta/format.h"'),
    ("src/sync/a.cc", "<sys/socket.h>"),
    ("src/sync/a_test.cc", '"server/server.h"'),
    ("src/new_folder/a.cc", "<vector>"),
    ("src/base/a.cc", '"bytes.h"'),
    ("src/delta/a.cc", "<cuda_runtime.h>"),
    ("src/device/host/a.cc", "<cub/cub.cuh>"),
    ("include/segue/a.cc", '"base/bytes.h"'),
    ("include/segue/a.cc", "<nlohmann/json.hpp>"),
    ("include/segue/a.cc", "<unistd.h>"),
    ("cli/a.cc", '"base/bytes.h"'),
    ("cli/a.cc", "<delta/format.h>"),
    ("examples/a.cc", '"sync/receiver.h"'),
    ("python/a.cc", '"checkpoint/plan.h"'),
])
def test_includes_against_the_direction(path, include):
    assert findings(path, HEAD + f"#include {include}\n") == [[f"{path}:4", "include"]]


@pytest.mark.parametrize("path, include", [
    ("src/base/a.cc", '"segue/status.h"'),
    ("src/delta/a.cc", '"device/device.h"'),
    ("src/codec/a_test.cc", "<thread>"),
    ("src/device/cuda/a.cc", "<cuda_runtime.h>"),
    ("include/segue/a.cc", "<string_view>"),
    ("cli/a.cc", '"segue/status.h"'),
    ("cli/a.cc", "<CLI/CLI.hpp>"),
    ("tests/a.cc", '"delta/format.h"'),
])
def test_includes_with_the_direction(path, include):
    assert not rules(path, HEAD + f"#include {include}\n")


def test_columns():
    assert not rules("src/base/a.cc", HEAD + "// " + "x" * 97 + "\n")
    assert findings("src/base/a.cc", HEAD + "// " + "x" * 98 + "\n") == [
        ["src/base/a.cc:4", "columns"]]
    assert rules("tools/a.py", PYTHON_HEAD + "#" * 101 + "\n") == ["columns"]
    assert not rules("src/base/a.cc", HEAD + "// " + "→" * 97 + "\n"), "characters, not bytes"


@pytest.mark.parametrize("path, text", [
    ("src/base/a.cc", "int x;\n"),
    ("src/base/a.cc", ""),
    ("src/base/a.cc", SPDX + "int x;\n"),
    ("src/base/a.cc", SPDX + "//\nint x;\n"),
    ("tools/a.py", '"""What this is."""\n'),
    ("tools/a.py", "# SPDX-License-Identifier: Apache-2.0\nimport os\n"),
])
def test_heads_that_say_nothing(path, text):
    assert rules(path, text) == ["head"]


def test_heads_of_programs():
    assert not rules("tools/a.py", "#!/usr/bin/env python3\n" + PYTHON_HEAD)


def test_headers_guard_themselves():
    assert rules("src/base/a.h", HEAD) == ["pragma"]
    assert not rules("src/base/a-inl.h", HEAD), "meant to be included more than once"


def function(lines, head="void F() {"):
    body = head + "\n" + "  G();\n" * (lines - 2) + "}\n"
    return HEAD + "namespace segue {\nstruct S {};\n" + body + "}\n"


@pytest.mark.parametrize("head", [
    "void F() {", "TEST(Suite, Name) {", "auto F() -> int {", "S::S() : a_(1), b_{2} {",
    "template <typename T> T F(T a = {}) const noexcept {", "class C { int F(int a) {",
])
def test_functions_have_an_end(head):
    assert not rules("src/base/a.cc", function(70, head))
    assert findings("src/base/a.cc", function(71, head)) == [["src/base/a.cc:6", "length"]]


def test_tables_and_scopes_are_no_functions():
    table = HEAD + "constexpr int kTable[] = {\n" + "  Make(1),\n" * 100 + "};\n"
    assert not rules("src/base/a.cc", table)
    assert not rules("src/base/a.cc", HEAD + 'extern "C" {\n' + "int F();\n" * 100 + "}\n")


def test_braces_in_texts_do_not_count():
    text = function(60).replace("G();", "G(\"{\", '{', 100'000);  // {", 10)
    assert not rules("src/base/a.cc", text)


def test_python_functions_and_files_have_an_end():
    assert rules("tools/a.py", PYTHON_HEAD + "def f():\n" + "  g()\n" * 71) == ["length"]
    assert not rules("tools/a.py", PYTHON_HEAD + "def f():\n" + "  g()\n" * 69)
    assert rules("tools/a.py", PYTHON_HEAD + "x = 1\n" * 799) == ["length"]


@pytest.mark.parametrize("path, code", [
    ("src/base/a.cc", "if (std::filesystem::exists(path)) return;"),
    ("src/base/a.cc", "sprintf(buffer, format);"),
    ("src/base/a.cc", "strcpy(a, b);"),
    ("src/base/a.cc", "return rand() % 6;"),
    ("src/base/a.cc", "std::mt19937 engine(1);"),
    ("src/base/a.cc", "std::thread worker(work);"),
    ("src/base/a.cc", "std::ranges::stable_partition(order, is_first);"),
    ("tests/a_test.cc", "for (int i : list | std::views::reverse) Use(i);"),
    ("src/base/a.cc", "assert(x);"),
    ("src/base/a.cc", "return atoi(text);"),
    ("src/base/a.cc", "return std::stoul(text);"),
    ("src/base/a.cc", "throw std::runtime_error(text);"),
    ("src/base/a.cc", "auto json = nlohmann::ordered_json::parse(text, nullptr, false);"),
    ("cli/a.cc", "if (Json::accept(text)) return;"),
    ("src/base/a.cc", "std::cout << 1;"),
    ("src/sync/a.cc", "auto t = std::chrono::system_clock::now();"),
])
def test_banned_calls(path, code):
    assert findings(path, HEAD + f"void F() {{\n{code}\n}}\n") == [[f"{path}:5", "banned"]]


@pytest.mark.parametrize("path, code", [
    ("src/base/a.cc", "// throw away, rand() and strcpy(a, b)"),
    ("src/base/a.cc", 'Log("throw rand()");'),
    ("src/base/a.cc", "static_assert(x); my_rand(); std::thread::hardware_concurrency();"),
    ("src/base/a.cc", "std::ranges::sort(order); std::ranges::find(order, 1);"),
    ("src/base/a_test.cc", 'std::printf("ok");'),
    ("cli/a.cc", 'std::printf("ok");'),
    ("src/sync/a.cc", "auto t = std::chrono::steady_clock::now();"),
    ("src/sync/a_test.cc", "auto t = std::chrono::system_clock::now();"),
])
def test_allowed_calls(path, code):
    assert not rules(path, HEAD + f"void F() {{\n{code}\n}}\n")


@pytest.mark.parametrize("word", ["FIX" "ME", "XX" "X", "HA" "CK", "TO" "DO", "TO" "DO(me)"])
def test_leftovers(word):
    assert findings("docs/a.md", f"text\n{word}: later\n") == [["docs/a.md:2", "leftover"]]


def test_marks_with_an_issue_stay():
    assert not rules("docs/a.md", "TO" "DO(#12): later; tmp.XXXXXX; hacked\n")


@pytest.mark.parametrize("text", [
    f"see {SLASH}work/main", f'"{SLASH}root/.cache"', f"cd {SLASH}home/me",
    "https://pypi" ".org/simple", "deb" ".debian.org",
])
def test_places_of_one_machine(text):
    assert rules("docs/a.md", text + "\n") == ["place"]


def test_relative_places_are_fine():
    assert not rules("docs/a.md", "src/work/a and ~/home/a and www.debian.org\n")


def test_sources_have_tests():
    def untested(**files):
        return [line.split(":")[0] for line in tidy.check_files(files) if ": untested: " in line]

    source = HEAD + '#include "base/a.h"\n'
    assert untested(**{"src/base/a.cc": source}) == ["src/base/a.cc"]
    assert untested(**{"src/base/a.cc": source, "src/codec/a_test.cc": HEAD}) == ["src/base/a.cc"]
    assert not untested(**{"src/base/a.cc": source, "src/base/a_fuzz.cc": HEAD})
    assert not untested(**{"src/base/a_avx2.cc": source, "src/base/a_test.cc": HEAD})
    assert not untested(**{"src/base/b.cc": source, "src/base/c_test.cc": source})
    assert not untested(**{"cli/a.cc": HEAD})


def test_exceptions_are_used_or_removed():
    files = {"src/base/a.cc": HEAD}
    assert not tidy.check_files(files, {"src/base/a.cc": {"untested": "a reason"}})
    stale = tidy.check_files(files, {"src/base/a.cc": {"untested": "a reason", "head": "a reason"}})
    assert len(stale) == 1 and ": exception: 'head'" in stale[0]


def test_the_program_ends_as_it_found():
    run = subprocess.run([sys.executable, tidy.__file__], capture_output=True, text=True,
                         check=False)
    assert run.stdout.splitlines()[-1].endswith(" findings")
    assert run.returncode == (0 if run.stdout.endswith(" 0 findings\n") else 1)
    assert subprocess.run([sys.executable, tidy.__file__, "--what"], capture_output=True,
                          check=False).returncode == 2


def test_two_test_modules_of_one_name():
    def named(*paths):
        return [line.split(":")[0] for line in tidy.check_files(dict.fromkeys(paths, PYTHON_HEAD))
                if ": name: " in line]
    assert named("tests/e2e/test_a.py", "python/tests/test_a.py") == ["tests/e2e/test_a.py"]
    assert named("tests/e2e/support.py", "python/tests/support.py") == ["tests/e2e/support.py"]
    assert not named("tests/e2e/test_a.py", "python/tests/test_b.py", "examples/rl/test_a.py")
    assert not named("python/segue/group.py", "python/segue/adapters/group.py")
    assert not named("tests/e2e/conftest.py", "python/tests/conftest.py")
