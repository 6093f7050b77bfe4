// SPDX-License-Identifier: Apache-2.0
//
// segue/view.h in Python.
#include "segue/view.h"

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings/interpreter.h"
#include "bindings/module.h"

namespace segue::python {
namespace {

using Axis = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

View MakeView(std::uint64_t source_offset, std::uint64_t target_offset,
              const std::vector<Axis>& axes) {
  View view{source_offset, target_offset, {}};
  view.axes.reserve(axes.size());
  for (const auto& [count, source, target] : axes) view.axes.push_back({count, source, target});
  return view;
}

std::vector<Axis> AxesOf(const View& view) {
  std::vector<Axis> axes;
  axes.reserve(view.axes.size());
  for (const ViewAxis& axis : view.axes) {
    axes.emplace_back(axis.count, axis.source_stride, axis.target_stride);
  }
  return axes;
}

View CheckedBox(const std::vector<std::uint64_t>& shape, const std::vector<std::uint64_t>& begin,
                const std::vector<std::uint64_t>& count,
                const std::vector<std::uint64_t>& target_strides, std::uint64_t target_offset) {
  return OrRaise(BoxView(shape, begin, count, target_strides, target_offset));
}

void BindMakers(nb::module_& module) {
  module.def("box_view", &CheckedBox, nb::arg("shape"), nb::arg("begin"), nb::arg("count"),
             nb::arg("target_strides"), nb::arg("target_offset") = 0,
             "A box of a tensor that is read as `shape`: count[k] steps from begin[k] on in "
             "dimension k (elements), which lie target_strides[k] bytes apart. "
             "InvalidArgumentError where the box leaves the shape.");
  module.def(
      "row_slice", &RowSlice, nb::arg("columns"), nb::arg("begin"), nb::arg("count"),
      nb::arg("width"), nb::arg("target_offset") = 0, nb::arg("row_stride") = 0,
      "Rows [begin, begin + count) of a tensor of `columns` columns, row after row. `width`: "
      "bytes of an element; offset and stride in bytes, stride 0 for rows without padding.");
  module.def("column_slice", &ColumnSlice, nb::arg("rows"), nb::arg("columns"), nb::arg("begin"),
             nb::arg("count"), nb::arg("width"), nb::arg("target_offset") = 0,
             nb::arg("row_stride") = 0,
             "Columns [begin, begin + count) of a tensor of rows x columns.");
  module.def("transposed_view", &TransposedView, nb::arg("rows"), nb::arg("columns"),
             nb::arg("width"), nb::arg("target_offset") = 0, nb::arg("column_stride") = 0,
             "A tensor of rows x columns whose buffer holds its transpose.");
  module.def("blocked_scale_views", &BlockedScaleViews, nb::arg("rows"), nb::arg("columns"),
             nb::arg("target_offset") = 0,
             "Block scales of one byte in tiles of 128 x 4, as Blackwell's tensor cores read them. "
             "Several views.");
}

}  // namespace

void BindView(nb::module_& module) {
  nb::class_<View>(module, "View",
                   "How the elements of a checkpoint tensor, or of a part of it, lie in an "
                   "engine's memory: element source_offset + sum(i[k] * source_stride[k]) lies at "
                   "byte target_offset + sum(i[k] * target_stride[k]) for all 0 <= i[k] < "
                   "count[k]. Strides nest on both sides.")
      .def(
          "__init__",
          [](View* self, std::uint64_t source_offset, std::uint64_t target_offset,
             const std::vector<Axis>& axes) {
            new (self) View(MakeView(source_offset, target_offset, axes));
          },
          nb::arg("source_offset") = 0, nb::arg("target_offset") = 0,
          nb::arg("axes") = std::vector<Axis>())
      .def_ro("source_offset", &View::source_offset, "Elements.")
      .def_ro("target_offset", &View::target_offset, "Bytes.")
      .def_prop_ro("axes", &AxesOf, "(count, source_stride in elements, target_stride in bytes).")
      .def("__eq__", [](const View& self, const View& other) { return self == other; })
      .def("__repr__", [](const View& self) {
        return nb::str("View(source_offset={}, target_offset={}, axes={})")
            .format(self.source_offset, self.target_offset, AxesOf(self));
      });
  BindMakers(module);
}

}  // namespace segue::python
