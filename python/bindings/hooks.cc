// SPDX-License-Identifier: Apache-2.0
//
// segue/engine_hooks.h in Python.
#include "bindings/hooks.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.h"

namespace segue::python {
namespace {

// Each callable raises to say no.
EngineHooks MakeOfCallables(const HooksHandle& from, const Raised& raised, HeldCallables& held) {
  EngineHooks hooks;
  hooks.pause = [call = Callback(from.pause, "the pause hook", held),
                 raised](const PauseRequest& request) {
    return call.CallOnly(raised.get(), request.abort_requests, request.flush_cache);
  };
  hooks.resume = [call = Callback(from.resume, "the resume hook", held), raised] {
    return call.CallOnly(raised.get());
  };
  if (!from.flush.is_none()) {
    hooks.flush = [call = Callback(from.flush, "the flush hook", held),
                   raised]() -> Result<std::vector<std::string>> {
      std::vector<std::string> caches;
      SEGUE_RETURN_IF_ERROR(call.Call(raised.get(), [&](const nb::object& answer) {
        caches = nb::cast<std::vector<std::string>>(answer);
        return Status();
      }));
      return caches;
    };
  }
  if (!from.set_version.is_none()) {
    hooks.set_version = [call = Callback(from.set_version, "the set_version hook", held),
                         raised](const std::string& label) {
      return call.CallOnly(raised.get(), label);
    };
  }
  return hooks;
}

HooksHandle MakeHooks(nb::object pause, nb::object flush, nb::object set_version,
                      nb::object resume) {
  return {std::move(pause), std::move(flush), std::move(set_version), std::move(resume), {}};
}

HooksHandle MakeHooksOverHttp(std::string kind, std::string url, std::string token,
                              std::vector<std::string> caches, double timeout, unsigned tries) {
  EngineHttpOptions options;
  options.kind = std::move(kind);
  options.url = std::move(url);
  options.token = std::move(token);
  options.caches = std::move(caches);
  options.timeout = Milliseconds(timeout);
  options.tries = tries;
  (void)OrRaise(MakeHttpHooks(options));
  HooksHandle handle;
  handle.http = std::move(options);
  return handle;
}

// --- The garbage collector's look at the callables
// --------------------------------------------------------

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const HooksHandle& handle = *nb::inst_ptr<HooksHandle>(self);
  for (const nb::object* const one :
       {&handle.pause, &handle.flush, &handle.set_version, &handle.resume}) {
    Py_VISIT(one->ptr());
  }
  return 0;
}

int Clear(PyObject* self) {
  HooksHandle& handle = *nb::inst_ptr<HooksHandle>(self);
  for (nb::object* const one :
       {&handle.pause, &handle.flush, &handle.set_version, &handle.resume}) {
    *one = nb::none();
  }
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(Clear)},
    {0, nullptr},
};

}  // namespace

EngineHooks HooksHandle::Make(const Raised& raised, HeldCallables& held) const {
  return http ? OrRaise(MakeHttpHooks(*http)) : MakeOfCallables(*this, raised, held);
}

void BindHooks(nb::module_& module) {
  const nb::class_<HooksHandle> hooks(module, "EngineHooks", "How a receiver controls an engine.",
                                      nb::type_slots(slots));
  module.def("make_hooks", &MakeHooks, nb::arg("pause"), nb::arg("flush").none(),
             nb::arg("set_version").none(), nb::arg("resume"));
  module.def("make_http_hooks", &MakeHooksOverHttp, nb::arg("kind"), nb::arg("url"),
             nb::arg("token"), nb::arg("caches"), nb::arg("timeout"), nb::arg("tries"));
}

}  // namespace segue::python
