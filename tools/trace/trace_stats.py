# SPDX-License-Identifier: Apache-2.0
"""Measures what changes between consecutive versions of a checkpoint, from its files alone.

Why from files: the same figures can then be taken of this trace, of the C++ generator's output and
of any real checkpoints, and none of them depends on the code that trained or generated them. The
figures are those of the workload notes: density, steps of one unit in the last place (ULP), XOR
bits, the upper half of an element (the high byte of BF16), repeats, and the size of the weights
that change.

What must hold: two elements differ if and only if their bits do, so 0.0 against -0.0 is a change
and a NaN equals itself.

    python tools/trace/trace_stats.py DIR     # DIR/vNNNN/*.safetensors; a table, or --json
"""

import argparse
import json
import pathlib

import numpy as np

import quantise
from safetensors_file import read_version

SCALE_SUFFIXES = ("_scale", "_scale_inv")
DENSITY_DIGITS = 8


def group_of(name, tensor):
    """The group a tensor is counted in."""
    if name.endswith("_scale_2"):
        return "tensor_scales"
    if name.endswith(SCALE_SUFFIXES):
        return "block_scales"
    return {"U8": "codes", "F8_E4M3": "codes", "BF16": "bf16"}.get(tensor.dtype, "other")


def elements_of(name, tensor):
    """(unsigned elements, bits in one): packed 4-bit codes count one by one."""
    if tensor.dtype == "U8" and group_of(name, tensor) == "codes":
        return quantise.unpack_nibbles(tensor.bits), 4
    return np.atleast_1d(tensor.bits), tensor.bits.dtype.itemsize * 8


def values_of(name, tensors):
    """FP32 values of a weight tensor, or None where a mean weight would say nothing."""
    tensor = tensors[name]
    group = group_of(name, tensor)
    if group == "bf16":
        return quantise.float_from_bf16(tensor.bits)
    if group == "codes" and tensor.dtype == "F8_E4M3" and name + "_scale_inv" in tensors:
        scales = tensors[name + "_scale_inv"].bits.view(np.float32)
        return quantise.fp8_dequantise(tensor.bits, scales)
    if group == "codes" and tensor.dtype == "U8" and name + "_scale_2" in tensors:
        tensor_scale = tensors[name + "_scale_2"].bits.view(np.float32)
        return quantise.nvfp4_dequantise(tensor.bits, tensors[name + "_scale"].bits, tensor_scale)
    return None


def ordered(elements, bit_count):
    """Sign-magnitude codes as integers in the order of their values; 1 apart is 1 ULP apart."""
    codes = elements.astype(np.int64)
    sign = np.int64(1) << (bit_count - 1)
    return np.where(codes & sign, -(codes & (sign - 1)), codes)


class GroupCount:
    """Sums over the tensors of one group for one step."""

    def __init__(self):
        self.bit_count = 0
        self.tensors = self.tensors_changed = 0
        self.elements = self.changed = self.changed_from_base = 0
        self.repeated = self.ulp1 = self.multi_bit = self.upper_half = 0
        self.xor_bits = np.zeros(32, dtype=np.int64)
        self.magnitude_sum = self.magnitude_changed_sum = 0.0
        self.magnitude_count = self.magnitude_changed_count = 0

    def add(self, source, target, base, changed_before, bit_count):
        """Counts one tensor and returns the mask of its changed elements."""
        mask = source != target
        xor = (source ^ target)[mask]
        self.bit_count = max(self.bit_count, bit_count)
        self.tensors += 1
        self.tensors_changed += int(xor.size > 0)
        self.elements += mask.size
        self.changed += xor.size
        self.changed_from_base += int(np.count_nonzero(target != base))
        if changed_before is not None:
            self.repeated += int(np.count_nonzero(mask & changed_before))
        step = ordered(target[mask], bit_count) - ordered(source[mask], bit_count)
        self.ulp1 += int(np.count_nonzero(np.abs(step) == 1))
        self.multi_bit += int(np.count_nonzero(xor & (xor - 1)))
        self.upper_half += int(np.count_nonzero(xor >> (bit_count // 2)))
        for bit in range(bit_count):
            self.xor_bits[bit] += int(np.count_nonzero((xor >> bit) & 1))
        return mask

    def add_magnitudes(self, values, mask):
        """Adds |w| of all and of the changed elements, but only of finite ones."""
        magnitude = np.abs(values, dtype=np.float64)
        finite = np.isfinite(magnitude)
        self.magnitude_sum += float(magnitude[finite].sum())
        self.magnitude_count += int(np.count_nonzero(finite))
        self.magnitude_changed_sum += float(magnitude[finite & mask].sum())
        self.magnitude_changed_count += int(np.count_nonzero(finite & mask))

    def figures(self, has_previous):
        """The group's shares as plain numbers; None where there is nothing to divide by."""
        mean_all = share(self.magnitude_sum, self.magnitude_count)
        mean_changed = share(self.magnitude_changed_sum, self.magnitude_changed_count)
        return {
            "tensors": self.tensors,
            "tensors_changed": self.tensors_changed,
            "elements": self.elements,
            "changed": self.changed,
            "changed_share": share(self.changed, self.elements),
            "changed_from_base_share": share(self.changed_from_base, self.elements),
            "repeat_share": share(self.repeated, self.changed) if has_previous else None,
            "ulp1_share": share(self.ulp1, self.changed),
            "multi_bit_share": share(self.multi_bit, self.changed),
            "upper_half_share": share(self.upper_half, self.changed),
            "xor_bit_share": [share(int(n), self.changed) for n in self.xor_bits[: self.bit_count]],
            "magnitude_all": mean_all,
            "magnitude_changed": mean_changed,
            "magnitude_ratio": share(mean_changed, mean_all),
        }


def share(part, whole):
    return round(part / whole, DENSITY_DIGITS) if part is not None and whole else None


def compare(source, target, base, changed_before):
    """(figures of one step, masks of changed elements) for {name: Tensor} of three versions.

    changed_before holds the masks of the step before, or is None at the first step.
    """
    if source.keys() != target.keys() or base.keys() != target.keys():
        raise ValueError("versions hold different tensors")
    groups, masks, bytes_changed, bytes_all = {}, {}, 0, 0
    for name in sorted(target):
        old, bit_count = elements_of(name, source[name])
        new, _ = elements_of(name, target[name])
        if old.shape != new.shape or source[name].dtype != target[name].dtype:
            raise ValueError(f"{name}: dtype or shape differs between versions")
        count = groups.setdefault(group_of(name, target[name]), GroupCount())
        before = None if changed_before is None else changed_before[name]
        masks[name] = count.add(old, new, elements_of(name, base[name])[0], before, bit_count)
        values = values_of(name, source)
        if values is not None:
            count.add_magnitudes(values, masks[name])
        bytes_changed += _bytes_changed(source[name].bits, target[name].bits)
        bytes_all += target[name].bits.nbytes
    has_previous = changed_before is not None
    figures = {group: count.figures(has_previous) for group, count in sorted(groups.items())}
    return {"bytes_changed_share": share(bytes_changed, bytes_all), "groups": figures}, masks


def _bytes_changed(source, target):
    old, new = (np.ascontiguousarray(bits).reshape(-1).view(np.uint8) for bits in (source, target))
    return int(np.count_nonzero(old != new))


def measure(directory):
    """Figures of every step of a folder whose subfolders, in order of name, are the versions."""
    versions = sorted(path for path in directory.iterdir() if path.is_dir())
    if len(versions) < 2:
        raise ValueError(f"{directory}: needs at least two versions")
    base = source = read_version(versions[0])
    steps, masks = [], None
    for path in versions[1:]:
        target = read_version(path)
        figures, masks = compare(source, target, base, masks)
        steps.append({"version": path.name, **figures})
        source = target
    return steps


COLUMNS = {
    "changed %": ("changed_share", 100),
    "from base %": ("changed_from_base_share", 100),
    "repeat %": ("repeat_share", 100),
    "±1 ULP %": ("ulp1_share", 100),
    "carry %": ("multi_bit_share", 100),
    "upper half %": ("upper_half_share", 100),
    "abs(w) changed / all": ("magnitude_ratio", 1),
}


def table(steps):
    """A Markdown table: one line per group and step, then the mean of the group's steps."""
    lines = ["| group | version | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for group in steps[0]["groups"]:
        rows = []
        for step in steps:
            figures = step["groups"][group]
            rows.append([figures[key] for key, _ in COLUMNS.values()])
            lines.append(_line(group, step["version"], rows[-1]))
        lines.append(_line(group, "mean", [_mean(column) for column in zip(*rows)]))
    return "\n".join(lines)


def _mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _line(group, version, row):
    cells = [_cell(value, factor) for value, (_, factor) in zip(row, COLUMNS.values())]
    return f"| {group} | {version} | " + " | ".join(cells) + " |"


def _cell(value, factor):
    return "–" if value is None else f"{value * factor:.3g}"


def main():
    parser = argparse.ArgumentParser(description="Statistics of consecutive checkpoint versions.")
    parser.add_argument("directory", type=pathlib.Path, help="folder with one subfolder a version")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON")
    arguments = parser.parse_args()
    steps = measure(arguments.directory)
    print(json.dumps(steps, indent=1) if arguments.json else table(steps))


if __name__ == "__main__":
    main()
