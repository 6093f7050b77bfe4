// SPDX-License-Identifier: Apache-2.0
//
// What each file of the module adds to it. Python code of the package (python/segue) makes of this
// what users see: here nothing is guessed and little is checked twice.
#pragma once

#include <nanobind/nanobind.h>

namespace segue::python {

void BindDeviceMemory(nanobind::module_& module);
void BindEngine(nanobind::module_& module);
void BindHooks(nanobind::module_& module);
void BindImport(nanobind::module_& module);
void BindPublisher(nanobind::module_& module);
void BindReceiver(nanobind::module_& module);
void BindReceiverGroup(nanobind::module_& module);
void BindView(nanobind::module_& module);

}  // namespace segue::python
