// SPDX-License-Identifier: Apache-2.0
//
// The module segue._core: the public C++ API (include/segue) as Python objects.
#include "bindings/module.h"

#include "bindings/interpreter.h"

NB_MODULE(_core_of_main, module) {
  // What a script keeps in globals until the interpreter ends is no leak to tell its user about.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = SEGUE_VERSION;
  module.def("end_interpreter", &segue::python::EndInterpreter,
             "From now on no callback enters Python. Called once, when the interpreter ends.");
  segue::python::BindView(module);
  segue::python::BindDeviceMemory(module);
  segue::python::BindImport(module);
  segue::python::BindHooks(module);
  segue::python::BindPublisher(module);
  segue::python::BindEngine(module);
  segue::python::BindReceiver(module);
  segue::python::BindReceiverGroup(module);
}

// What Python calls. Types and callbacks belong to the main interpreter: another one would take
// them with it when it ends.
extern "C" NB_EXPORT PyObject* PyInit__core(void) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "segue works in the main interpreter alone");
    return nullptr;
  }
  return PyInit__core_of_main();
}
