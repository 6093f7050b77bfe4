// SPDX-License-Identifier: Apache-2.0
//
// HandleOf: a receiver, or a group of them, that can be closed while other threads use it. close()
// waits for calls that are under way; calls that come later are refused. In a child made by fork,
// which has not got the receiver's threads, all are.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/interpreter.h"
#include "segue/receiver_group.h"
#include "segue/step_gate.h"

namespace segue::python {

// `Kind`: Receiver or ReceiverGroup.
template <typename Kind>
class HandleOf {
 public:
  // What must live as long as the receiver: its callbacks point there.
  struct Parts {
    std::shared_ptr<RaisedInCallback> raised;
    std::vector<std::shared_ptr<StepGate>> gates;  // By lineage.
  };

  HandleOf(std::unique_ptr<Kind> receiver, Parts parts)
      : parts_(std::move(parts)), receiver_(std::move(receiver)) {}
  ~HandleOf() { Close(); }
  HandleOf(const HandleOf&) = delete;
  HandleOf& operator=(const HandleOf&) = delete;

  // Runs `call(receiver)` without the lock and raises what it fails with.
  template <typename Call>
  auto Use(Call call) {
    parts_.raised->Clear();
    return Run(
        [&]() -> decltype(call(*receiver_)) {
          SEGUE_ASSIGN_OR_RETURN(const void* const outer, BeginCall());
          auto outcome = call(*receiver_);
          EndCall(outer);
          return outcome;
        },
        parts_.raised.get());
  }
  // Waits for a prepare; Ctrl-C aborts it. For calls of Use, in the main thread.
  Status WaitPreparedOrSignal(Kind& receiver, const std::string& session);
  // InvalidArgument where it would wait for itself: called back from a call of this receiver.
  void Close();

  const std::vector<std::shared_ptr<StepGate>>& gates() const { return parts_.gates; }

 private:
  // What this thread was in a call of before, for EndCall.
  Result<const void*> BeginCall();
  void EndCall(const void* outer);

  const OwnProcess process_;
  const Parts parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned calls_ = 0;
  bool closed_ = false;
  std::unique_ptr<Kind> receiver_;
};

using ReceiverHandle = HandleOf<Receiver>;
using GroupHandle = HandleOf<ReceiverGroup>;

}  // namespace segue::python
