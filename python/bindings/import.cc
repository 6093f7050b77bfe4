// SPDX-License-Identifier: Apache-2.0
//
// Where foreign tensors lie: DLPack and the buffer protocol, without copies. And their checksums.
//
// A DLPack capsule is taken from its exporter once and held as long as the tensor. What it says is
// checked before anything is believed: a capsule comes from another library, and what it points at
// will be read and written.
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bindings/interpreter.h"
#include "bindings/module.h"
#include "bindings/source.h"
#include "segue/checksum.h"

namespace segue::python {
namespace {

// --- DLPack 1, as its header has it -------------------------------------------------------

struct DlTensor {
  void* data;
  std::int32_t device_kind;
  std::int32_t device_ordinal;
  std::int32_t dimensions;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};

struct DlVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(DlVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};

constexpr char kName[] = "dltensor", kUsed[] = "used_dltensor";
constexpr char kVersionedName[] = "dltensor_versioned";
constexpr char kVersionedUsed[] = "used_dltensor_versioned";
constexpr std::uint64_t kReadOnly = 1, kIsCopied = 2;
constexpr std::int32_t kDimensionsMax = 64;

// A tensor of another library, held as long as this.
class Imported {
 public:
  explicit Imported(DlManaged* plain) : plain_(plain) {}
  explicit Imported(DlVersioned* versioned) : versioned_(versioned) {}
  Imported(Imported&& other) noexcept
      : plain_(std::exchange(other.plain_, nullptr)),
        versioned_(std::exchange(other.versioned_, nullptr)) {}
  Imported& operator=(Imported&&) = delete;
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  ~Imported() {
    if (plain_ != nullptr && plain_->deleter != nullptr) plain_->deleter(plain_);
    if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
  }

  const DlTensor& tensor() const { return plain_ != nullptr ? plain_->tensor : versioned_->tensor; }
  // A plain capsule has no words for memory that is read only: exporters refuse to make one.
  bool writable() const { return versioned_ == nullptr || (versioned_->flags & kReadOnly) == 0; }
  bool copied() const { return versioned_ != nullptr && (versioned_->flags & kIsCopied) != 0; }
  std::uint64_t address() const {
    return reinterpret_cast<std::uint64_t>(tensor().data) + tensor().byte_offset;
  }
  std::vector<std::int64_t> shape() const {
    const DlTensor& t = tensor();
    return {t.shape, t.shape + t.dimensions};
  }
  // In elements; a tensor without them is contiguous.
  std::vector<std::int64_t> strides() const {
    const DlTensor& t = tensor();
    if (t.strides != nullptr) return {t.strides, t.strides + t.dimensions};
    std::vector<std::int64_t> strides(static_cast<std::size_t>(t.dimensions), 1);
    for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * t.shape[i];
    return strides;
  }

 private:
  DlManaged* plain_ = nullptr;
  DlVersioned* versioned_ = nullptr;
};

// Takes the tensor out of its capsule, which nobody can take it from again.
Imported Taken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVersionedName) != 0) {
    auto* const found = static_cast<DlVersioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
    if (found->major != 1) {
      Raise(InvalidArgument("its DLPack is of version " + std::to_string(found->major) + "." +
                            std::to_string(found->minor) + ", of which only 1 is known"));
    }
    if (PyCapsule_SetName(capsule, kVersionedUsed) != 0) throw nb::python_error();
    return Imported(found);
  }
  if (PyCapsule_IsValid(capsule, kName) == 0) {
    Raise(InvalidArgument("its __dlpack__ gave no fresh capsule of DLPack"));
  }
  auto* const found = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule, kName));
  if (PyCapsule_SetName(capsule, kUsed) != 0) throw nb::python_error();
  return Imported(found);
}

// The elements' bytes fit in 63 bits.
Status CheckShape(const DlTensor& tensor) {
  if (tensor.dimensions < 0 || tensor.dimensions > kDimensionsMax ||
      (tensor.dimensions > 0 && tensor.shape == nullptr)) {
    return InvalidArgument("its DLPack has " + std::to_string(tensor.dimensions) + " dimensions");
  }
  std::uint64_t bits = tensor.bits;
  bool empty = false;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    if (tensor.shape[i] < 0) {
      return InvalidArgument("its DLPack has a dimension of " + std::to_string(tensor.shape[i]));
    }
    if (tensor.shape[i] == 0) empty = true;
    const auto count = static_cast<std::uint64_t>(tensor.shape[i]);
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (count > 1 && bits > kMax / count) {
      return InvalidArgument("the dimensions of its DLPack are more than memory has");
    }
    if (count > 1) bits *= count;
  }
  if (!empty && tensor.data == nullptr) return InvalidArgument("its DLPack has no memory");
  return {};
}

Status Check(const Imported& imported, std::int32_t kind, std::int32_t ordinal) {
  const DlTensor& tensor = imported.tensor();
  if (tensor.device_kind != kind || tensor.device_ordinal != ordinal) {
    return InvalidArgument("it says to be on device (" + std::to_string(kind) + ", " +
                           std::to_string(ordinal) + "), and its DLPack on (" +
                           std::to_string(tensor.device_kind) + ", " +
                           std::to_string(tensor.device_ordinal) + ")");
  }
  if (tensor.bits == 0 || tensor.lanes == 0) {
    return InvalidArgument("its DLPack has elements without bits");
  }
  return CheckShape(tensor);
}

Imported ImportDlpack(nb::handle capsule, std::int32_t kind, std::int32_t ordinal) {
  if (!PyCapsule_CheckExact(capsule.ptr())) {
    Raise(InvalidArgument("its __dlpack__ gave no capsule"));
  }
  Imported imported = Taken(capsule.ptr());
  OrRaise(Check(imported, kind, ordinal));
  return imported;
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
      .def_prop_ro("address", &Imported::address)
      .def_prop_ro("writable", &Imported::writable)
      .def_prop_ro("copied", &Imported::copied, "Whether the exporter says that it is a copy.")
      .def_prop_ro(
          "dtype",
          [](const Imported& self) {
            const DlTensor& tensor = self.tensor();
            return nb::make_tuple(tensor.code, tensor.bits, tensor.lanes);
          },
          "Code, bits and lanes of DLPack.")
      .def_prop_ro("shape", [](const Imported& self) { return nb::tuple(nb::cast(self.shape())); })
      .def_prop_ro(
          "strides", [](const Imported& self) { return nb::tuple(nb::cast(self.strides())); },
          "In elements.");
  module.def("import_dlpack", &ImportDlpack, nb::arg("capsule"), nb::arg("kind"),
             nb::arg("ordinal"),
             "Takes the tensor out of a capsule; its exporter said this device. InvalidArgument, "
             "without a name, for one that is not to be believed.");
  module.def("buffer_address", &BufferAddress, nb::arg("object"));
  module.def("checksum", &ChecksumAt, nb::arg("address"), nb::arg("size"),
             "XXH3-128 of memory, 16 bytes.");
}

}  // namespace segue::python
