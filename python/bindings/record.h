// SPDX-License-Identifier: Apache-2.0
//
// Record: a struct of the C++ API as a Python object whose fields are read, printed and turned into
// a dictionary.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace segue::python {

namespace nb = nanobind;

template <typename T>
class Record {
 public:
  Record(nb::module_& module, const char* name, const char* doc) : class_(module, name, doc) {
    class_.def("as_dict", &AsDict, "The fields by name.");
    class_.def("__repr__", [](nb::handle self) -> nb::object {
      return nb::str("{}({})").format(self.type().attr("__name__"),
                                      nb::str(", ").attr("join")(Words(AsDict(self))));
    });
    class_.attr("FIELDS") = nb::tuple();
  }

  template <typename Member>
  Record& Field(const char* name, Member T::*member, const char* doc) {
    class_.def_ro(name, member, doc);
    return Listed(name);
  }
  template <typename Get>
  Record& Derived(const char* name, Get get, const char* doc) {
    class_.def_prop_ro(name, get, doc);
    return Listed(name);
  }

 private:
  Record& Listed(const char* name) {
    class_.attr("FIELDS") = class_.attr("FIELDS") + nb::make_tuple(name);
    return *this;
  }
  static nb::dict AsDict(nb::handle self) {
    nb::dict fields;
    for (nb::handle name : self.type().attr("FIELDS")) {
      nb::object value = nb::getattr(self, name);
      if (nb::hasattr(value, "as_dict")) value = value.attr("as_dict")();
      fields[name] = value;
    }
    return fields;
  }
  static nb::list Words(const nb::dict& fields) {
    nb::list words;
    for (const auto& [name, value] : fields) {
      words.append(nb::str("{}={!r}").format(name, value));
    }
    return words;
  }

  nb::class_<T> class_;
};

}  // namespace segue::python
