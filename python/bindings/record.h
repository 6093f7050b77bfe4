// SPDX-License-Identifier: Apache-2.0
//
// Record: a struct of the C++ API as a Python object whose fields are read, printed, pickled and
// turned into a dictionary.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <map>
#include <new>
#include <string>

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
    class_.def("__getstate__", &Fields);
    class_.def("__setstate__", [](T& self, const nb::dict& fields) {
      T* const made = new (&self) T();
      for (const auto& [key, value] : fields) {
        const auto set = Setters().find(nb::cast<std::string>(key));
        if (set != Setters().end()) set->second(*made, value);
      }
    });
    class_.attr("FIELDS") = nb::tuple();
  }

  template <typename Member>
  Record& Field(const char* name, Member T::*member, const char* doc) {
    class_.def_ro(name, member, doc);
    Setters()[name] = [member](T& record, nb::handle value) {
      record.*member = nb::cast<Member>(value);
    };
    return Listed(name);
  }
  // An enumeration, whose values from 0 to `last` Python has by the names that `kName` gives them.
  template <auto kName, typename Enum>
  Record& Named(const char* name, Enum T::*member, Enum last, const char* doc) {
    class_.def_prop_ro(
        name, [member](const T& record) { return std::string(kName(record.*member)); }, doc);
    Setters()[name] = [member, last](T& record, nb::handle value) {
      for (int i = 0; i <= static_cast<int>(last); ++i) {
        const Enum known = static_cast<Enum>(i);
        if (kName(known) == nb::cast<std::string>(value)) record.*member = known;
      }
    };
    return Listed(name);
  }

 private:
  // What makes a record of its fields again.
  static std::map<std::string, std::function<void(T&, nb::handle)>>& Setters() {
    static std::map<std::string, std::function<void(T&, nb::handle)>> setters;
    return setters;
  }
  Record& Listed(const char* name) {
    class_.attr("FIELDS") = class_.attr("FIELDS") + nb::make_tuple(name);
    return *this;
  }
  static nb::dict Fields(nb::handle self) {
    nb::dict fields;
    for (nb::handle name : self.type().attr("FIELDS")) fields[name] = nb::getattr(self, name);
    return fields;
  }
  static nb::dict AsDict(nb::handle self) {
    nb::dict fields = Fields(self);
    for (const auto& [name, value] : Fields(self)) {
      if (nb::hasattr(value, "as_dict")) fields[name] = value.attr("as_dict")();
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
