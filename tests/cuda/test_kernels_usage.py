# SPDX-License-Identifier: Apache-2.0
"""What the kernels take of a GPU's registers and memory, as the compiler of its machine code says
it: no kernel may keep anything in local memory, on any architecture that the library carries code
for. A hot loop that goes through local memory is right, and several times slower, and no test
without a GPU notices. Needs nvcc, no GPU."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
KERNELS = ROOT / "src/device/cuda/kernels.cu"
ARCHITECTURES = re.findall(r"\d+", re.search(
    r"foreach\(architecture ([\d ]+)\)", (ROOT / "cmake/cuda.cmake").read_text()).group(1))
PROPERTIES = re.compile(
    r"Compiling entry function '(\w+)' for 'sm_(\d+)'\n.*\n"
    r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def usage(source, folder):
    """Stack, spill stores and spill loads in bytes, by architecture and kernel."""
    targets = [word for number in ARCHITECTURES
               for word in ("-gencode", f"arch=compute_{number},code=sm_{number}")]
    result = subprocess.run(
        [NVCC, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xptxas", "-v",
         f"-I{ROOT}/src", f"-I{ROOT}/include", *targets, "-fatbin", "-o",
         folder / "kernels.fatbin", source],
        capture_output=True, text=True, check=True)
    return {(architecture, name): [int(size) for size in sizes]
            for name, architecture, *sizes in PROPERTIES.findall(result.stderr)}


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_no_kernel_uses_local_memory(tmp_path):
    found = usage(KERNELS, tmp_path)
    names = re.findall(r"ENTRY (segue_\w+)\(", KERNELS.read_text().replace("\n", " "))
    assert len(names) >= 9
    assert sorted(found) == sorted((number, name) for number in ARCHITECTURES for name in names)
    assert {kernel: sizes for kernel, sizes in found.items() if any(sizes)} == {}


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_local_memory_is_noticed(tmp_path):
    source = tmp_path / "bad.cu"
    source.write_text("""extern "C" __global__ void bad(int* out, const int* in, int n) {
  int held[64];
  for (int i = 0; i < 64; ++i) held[i] = in[i * n];
  for (int i = 0; i < n; ++i) out[i] = held[in[i] % 64];
}
""")
    found = usage(source, tmp_path)
    assert len(found) == len(ARCHITECTURES) and all(sizes[0] > 0 for sizes in found.values())
