# SPDX-License-Identifier: Apache-2.0
"""What the golden files are made from: `make_golden.py` writes what these modules describe."""
