# SPDX-License-Identifier: Apache-2.0
"""`python -m segue`: becomes the command line program that the package carries."""

import os
import pathlib
import sys


def main():
    """Replaces this process by the program; its exit codes and signals are then its own."""
    program = pathlib.Path(__file__).parent / "bin" / "segue"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, ["segue", *sys.argv[1:]])


if __name__ == "__main__":
    main()
