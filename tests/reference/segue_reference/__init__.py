# SPDX-License-Identifier: Apache-2.0
"""Reference reader of Segue's formats in plain Python.

Written from docs/format.md alone, to prove that the document suffices and to hold the C++ against
something that shares no code with it. Clear before fast: it reads whole objects into memory and
checks everything that the document lets a reader check. `writers.py` and `encode.py` are the other
direction, as far as test vectors need it.
"""
