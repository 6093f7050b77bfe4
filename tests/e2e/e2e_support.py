# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: running the program, and reading and writing checkpoints
without it, so that it never judges itself."""

import json
import pathlib
import shutil
import struct
import subprocess

TRACE = pathlib.Path(__file__).resolve().parents[1] / "data" / "trace"

# The table of `segue --help`.
EXIT_CODES = {"ok": 0, "invalid_argument": 2, "not_found": 3, "version_mismatch": 4,
              "corruption": 5, "unsupported": 6, "resource_exhausted": 7, "unavailable": 8,
              "tainted": 9, "internal": 10}


class Segue:
    """Calls the program; the result of a verb is its JSON."""

    def __init__(self, binary):
        self.binary = str(binary)

    def command(self, *arguments):
        return [self.binary, *map(str, arguments)]

    def run(self, *arguments):
        return subprocess.run(self.command(*arguments), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120, check=False)

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def __call__(self, *arguments):
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)

    def text(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, code, *arguments):
        """Expects an error of this code; returns its sentence."""
        done = self.run(*arguments, "--json")
        return check_failure(code, done.returncode, done.stdout, done.stderr)


def check_failure(code, returncode, stdout, stderr):
    assert returncode == EXIT_CODES[code], (returncode, stderr)
    error = json.loads(stdout)["error"]
    assert error["code"] == code
    errors = [line for line in stderr.splitlines() if ": warning: " not in line]
    assert len(errors) == 1 and errors[0].startswith("segue") and errors[0].endswith(f"({code})")
    assert error["message"] in errors[0]
    return error["message"]


def version_directory(name, version):
    return TRACE / name / f"v{version:04d}"


def files_of(directory):
    """{name: bytes} of a checkpoint's own files."""
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()
            if path.is_file()}


def same_files(left, right):
    return files_of(left) == files_of(right)


def tree_of(directory):
    """{path: bytes} of everything below."""
    root = pathlib.Path(directory)
    return {str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*") if path.is_file()}


def copy_of(checkpoint, target):
    shutil.copytree(checkpoint, target)
    return target


def write_safetensors(directory, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}."""
    directory.mkdir(parents=True)
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, content) in tensors.items():
        end = offset + len(content)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = b"".join(content for _, _, content in tensors.values())
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
    return directory


def tensor_places(path):
    """{name: (first, last) byte offset in the file} of a safetensors file."""
    content = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    return {name: tuple(8 + size + offset for offset in entry["data_offsets"])
            for name, entry in header.items() if name != "__metadata__"}


def flip_bit(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def find_byte(base, target, changed):
    """(file name, offset, tensor) of a byte that changes, or that does not, nor its neighbours."""
    for path in sorted(base.glob("*.safetensors")):
        old, new = path.read_bytes(), (target / path.name).read_bytes()
        for tensor, (first, last) in tensor_places(path).items():
            for offset in range(first, last - 8, 8):
                differs = [old[offset + i] != new[offset + i] for i in range(8)]
                if changed and differs[0] or not changed and not any(differs):
                    return path.name, offset, tensor
    raise AssertionError("no such byte")
