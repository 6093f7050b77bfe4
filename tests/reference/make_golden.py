#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files: valid/NAME, invalid/NAME and signed/LABEL.json below tests/golden.

    make_golden.py            write what is missing; refuse to change what is there
    make_golden.py --check    write nothing, fail on any difference
    make_golden.py --force    write everything (before the format's first release)

Everything follows from `golden_source` and, for compressed frames, from the release of libzstd that
`zstandard` carries; tests/golden/README.md names it.
"""

import argparse
import json
import sys
from pathlib import Path

import zstandard

from golden_source import invalid, signed, valid
from golden_source.scenario import files_of, target_files_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ZSTD_RELEASE = ".".join(str(part) for part in zstandard.ZSTD_VERSION)

README = f"""# Golden files

Written by `tests/reference/make_golden.py`, which says what each one is for (in
`tests/reference/golden_source/`); frames were compressed by libzstd {ZSTD_RELEASE}. Files are
added, never removed.

- `valid/NAME`: `plan.bin`, `layout.bin` (of the target), `manifest.json`, `payload-OWNER.bin`,
  `base/` and `target/` (safetensors checkpoints); `anchor.json` in place of `manifest.json` where
  the update is an anchor's. The update turns `base/` into `target/`, byte for
  byte.
- `invalid/NAME`: the same but `target/`, with one lie, and `expected.json`: the status `code`, the
  `object` that is at fault and a `reason` in words. `also` lists codes that a reader may give that
  checks in another order than the reference does.
- `signed/LABEL.json`: objects that are signed, or not as they should be; `cases.json` says under
  which name each is read and whether a reader with the keys `key.pem` and `second.pem` takes it.
"""


def golden_files() -> dict[str, bytes]:
    """All golden files: path below tests/golden to bytes."""
    files = {"README.md": README.encode()}
    for name, build in valid.VECTORS.items():
        vector = build()
        for path, data in (files_of(vector) | target_files_of(vector)).items():
            files[f"valid/{name}/{path}"] = data
    for name, lie in invalid.VECTORS.items():
        for path, data in files_of(lie.build()).items():
            files[f"invalid/{name}/{path}"] = data
        expected = {"code": lie.code, "object": lie.object, "reason": lie.reason}
        if lie.also:
            expected["also"] = list(lie.also)
        files[f"invalid/{name}/expected.json"] = json.dumps(expected, indent=2).encode() + b"\n"
    manifest = files["valid/two-owners/manifest.json"]
    return files | {f"signed/{name}": data for name, data in signed.signed_files(manifest).items()}


def differences(files: dict[str, bytes]) -> list[str]:
    """Paths that are missing, differ, or are there for no reason."""
    present = {str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("*") if p.is_file()}
    wrong = sorted(present - set(files))
    for path, data in files.items():
        if path not in present or (GOLDEN / path).read_bytes() != data:
            wrong.append(path)
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args(arguments)
    files = golden_files()
    wrong = differences(files)
    if options.check:
        print("\n".join(wrong) or "golden files agree")
        return 1 if wrong else 0
    changed = [path for path in wrong if path in files and (GOLDEN / path).exists()]
    if changed and not options.force:
        print("would change:\n" + "\n".join(changed), file=sys.stderr)
        return 1
    for path in wrong:
        if path in files:
            (GOLDEN / path).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / path).write_bytes(files[path])
    print(f"{len(files)} files, {sum(len(data) for data in files.values())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
