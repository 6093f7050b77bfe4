# SPDX-License-Identifier: Apache-2.0
"""Views: how the elements of a checkpoint's tensor lie in an engine's buffer, for
Receiver.bind(view=...). The layouts that engines have; `segue.View` is any other. Rows, columns,
begins and counts are elements, widths, strides and offsets in the buffer bytes. Numbers that no
layout can have are an InvalidArgumentError that names them."""

from collections.abc import Sequence

from segue import _core
from segue import options as checked
from segue._core import View


def row_slice(columns: int, begin: int, count: int, width: int, target_offset: int = 0,
              row_stride: int = 0) -> View:
    """Rows [begin, begin + count) of a tensor of `columns` columns, row after row, from byte
    `target_offset` of the buffer on. `width`: bytes of an element; `row_stride`: bytes from one row
    to the next in the buffer, 0 for rows without padding. InvalidArgumentError for numbers that no
    layout has."""
    return _core.row_slice(**_counts(columns=columns, begin=begin, count=count, width=width,
                                     target_offset=target_offset, row_stride=row_stride))


def column_slice(rows: int, columns: int, begin: int, count: int, width: int,
                 target_offset: int = 0, row_stride: int = 0) -> View:
    """Columns [begin, begin + count) of a tensor of rows x columns. `width`, `target_offset` and
    `row_stride` in bytes, as of row_slice(); InvalidArgumentError for columns that it has not."""
    return _core.column_slice(**_counts(rows=rows, columns=columns, begin=begin, count=count,
                                        width=width, target_offset=target_offset,
                                        row_stride=row_stride))


def transposed_view(rows: int, columns: int, width: int, target_offset: int = 0,
                    column_stride: int = 0) -> View:
    """A tensor of rows x columns whose buffer holds its transpose. `width`: bytes of an element;
    `column_stride`: bytes from one column to the next in the buffer, 0 for columns without padding.
    InvalidArgumentError for numbers that no layout has."""
    return _core.transposed_view(**_counts(rows=rows, columns=columns, width=width,
                                           target_offset=target_offset,
                                           column_stride=column_stride))


def box_view(shape: Sequence[int], begin: Sequence[int], count: Sequence[int],
             target_strides: Sequence[int], target_offset: int = 0) -> View:
    """A box of a tensor that is read as `shape`: count[k] steps from begin[k] on in dimension k
    (elements), which lie target_strides[k] bytes apart. InvalidArgumentError where the box leaves
    the shape."""
    lists = {"shape": shape, "begin": begin, "count": count, "target_strides": target_strides}
    return _core.box_view(
        **{name: [checked.count(f"each of {name}", value)
                  for value in checked.several(name, values)] for name, values in lists.items()},
        target_offset=checked.count("target_offset", target_offset))


def blocked_scale_views(rows: int, columns: int, target_offset: int = 0) -> list[View]:
    """Block scales of one byte, rows x columns, in tiles of 128 x 4 from byte `target_offset` on,
    as Blackwell's tensor cores read them: several views, each to be bound for the same tensor.
    InvalidArgumentError for numbers that no layout has."""
    return _core.blocked_scale_views(**_counts(rows=rows, columns=columns,
                                               target_offset=target_offset))


def _counts(**values: int) -> dict[str, int]:
    return {name: checked.count(name, value) for name, value in values.items()}
