// SPDX-License-Identifier: Apache-2.0
//
// Gate: how engines are kept from reading while weights change. In another process: shared_gate.h;
// in this one or behind an engine's own control interface: CallbackGate.
//
// One caller at a time closes and opens. After Close() has succeeded no engine reads until Open();
// after it has failed nothing is changed: engines run on.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "segue/status.h"

namespace segue {

class Gate {
 public:
  virtual ~Gate() = default;
  // Unavailable when engines are still reading at the deadline.
  virtual Status Close(std::chrono::milliseconds deadline) = 0;
  virtual Status Open() = 0;
};

class CallbackGate : public Gate {
 public:
  using CloseCall = std::function<Status(std::chrono::milliseconds deadline)>;
  using OpenCall = std::function<Status()>;

  CallbackGate(CloseCall close, OpenCall open) : close_(std::move(close)), open_(std::move(open)) {}
  Status Close(std::chrono::milliseconds deadline) override { return close_(deadline); }
  Status Open() override { return open_(); }

 private:
  CloseCall close_;
  OpenCall open_;
};

}  // namespace segue
