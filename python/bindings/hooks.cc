// SPDX-License-Identifier: Apache-2.0
//
// segue/engine_hooks.h in Python.
#include "bindings/hooks.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/callback.h"
#include "bindings/module.h"

namespace segue::python {
namespace {

// Each callable raises to say no. Those that are None are not there.
HooksHandle MakeHooks(nb::object pause, nb::object flush, nb::object set_version,
                      nb::object resume) {
  HooksHandle handle;
  RaisedInCallback* const raised = handle.raised.get();
  handle.hooks.pause = [call = Callback(std::move(pause), "the pause hook"),
                        raised](const PauseRequest& request) {
    return call.CallOnly(raised, request.abort_requests, request.flush_cache);
  };
  handle.hooks.resume = [call = Callback(std::move(resume), "the resume hook"), raised] {
    return call.CallOnly(raised);
  };
  if (!flush.is_none()) {
    handle.hooks.flush = [call = Callback(std::move(flush), "the flush hook"),
                          raised]() -> Result<std::vector<std::string>> {
      std::vector<std::string> caches;
      SEGUE_RETURN_IF_ERROR(call.Call(raised, [&](const nb::object& answer) {
        caches = nb::cast<std::vector<std::string>>(answer);
        return Status();
      }));
      return caches;
    };
  }
  if (!set_version.is_none()) {
    handle.hooks.set_version = [call = Callback(std::move(set_version), "the set_version hook"),
                                raised](const std::string& label) {
      return call.CallOnly(raised, label);
    };
  }
  return handle;
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
  HooksHandle handle;
  handle.hooks = OrRaise(MakeHttpHooks(options));
  return handle;
}

}  // namespace

void BindHooks(nb::module_& module) {
  const nb::class_<HooksHandle> hooks(module, "EngineHooks", "How a receiver controls an engine.");
  module.def("make_hooks", &MakeHooks, nb::arg("pause"), nb::arg("flush").none(),
             nb::arg("set_version").none(), nb::arg("resume"));
  module.def("make_http_hooks", &MakeHooksOverHttp, nb::arg("kind"), nb::arg("url"),
             nb::arg("token"), nb::arg("caches"), nb::arg("timeout"), nb::arg("tries"));
}

}  // namespace segue::python
