// SPDX-License-Identifier: Apache-2.0
//
// Where foreign tensors lie: DLPack and the buffer protocol, without copies. And their checksums.
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/interpreter.h"
#include "bindings/module.h"
#include "bindings/source.h"
#include "segue/checksum.h"

namespace segue::python {
namespace {

// A tensor of another library, held as long as this.
struct Imported {
  nb::ndarray<nb::ro> array;
  bool writable = false;
};

Imported ImportDlpack(nb::handle tensor) {
  nb::ndarray<> writable;
  if (nb::try_cast(tensor, writable, /*convert=*/false)) {
    return {nb::ndarray<nb::ro>(writable), true};
  }
  return {nb::cast<nb::ndarray<nb::ro>>(tensor, /*convert=*/false), false};
}

std::uint64_t BufferAddress(nb::handle object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto address = reinterpret_cast<std::uint64_t>(view.buf);
  PyBuffer_Release(&view);
  return address;
}

nb::bytes ChecksumAt(std::uint64_t address, std::uint64_t size) {
  const Checksum checksum = [&] {
    const WithoutGil released;
    return ChecksumOf({AddressOf(address, size), size});
  }();
  return nb::bytes(checksum.data(), checksum.size());
}

}  // namespace

void BindImport(nb::module_& module) {
  nb::class_<Imported>(module, "ImportedTensor", "A tensor that came through DLPack.")
      .def_prop_ro(
          "address",
          [](const Imported& self) { return reinterpret_cast<std::uint64_t>(self.array.data()); })
      .def_prop_ro("writable", [](const Imported& self) { return self.writable; })
      .def_prop_ro(
          "dtype",
          [](const Imported& self) {
            const nb::dlpack::dtype dtype = self.array.dtype();
            return nb::make_tuple(dtype.code, dtype.bits, dtype.lanes);
          },
          "Code, bits and lanes of DLPack.")
      .def_prop_ro("shape",
                   [](const Imported& self) {
                     std::vector<std::int64_t> shape(self.array.ndim());
                     for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = self.array.shape(i);
                     return nb::tuple(nb::cast(shape));
                   })
      .def_prop_ro(
          "strides",
          [](const Imported& self) {
            std::vector<std::int64_t> strides(self.array.ndim());
            for (std::size_t i = 0; i < strides.size(); ++i) {
              strides[i] = self.array.stride(i);
            }
            return nb::tuple(nb::cast(strides));
          },
          "In elements.");
  module.def("import_dlpack", &ImportDlpack, nb::arg("tensor"));
  module.def("buffer_address", &BufferAddress, nb::arg("object"));
  module.def("checksum", &ChecksumAt, nb::arg("address"), nb::arg("size"),
             "XXH3-128 of memory, 16 bytes.");
}

}  // namespace segue::python
