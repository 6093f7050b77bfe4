// SPDX-License-Identifier: Apache-2.0
//
// ReceiverHandle: a receiver that can be closed while other threads use it. close() waits for calls
// that are under way; calls that come later are refused. In a child made by fork, which has not got
// the receiver's threads, all are.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bindings/interpreter.h"
#include "segue/receiver.h"
#include "segue/step_gate.h"

namespace segue::python {

class ReceiverHandle {
 public:
  // What must live as long as the receiver: its callbacks point there.
  struct Parts {
    std::shared_ptr<RaisedInCallback> raised;
    std::shared_ptr<StepGate> gate = std::make_shared<StepGate>();
  };

  ReceiverHandle(std::unique_ptr<Receiver> receiver, Parts parts)
      : parts_(std::move(parts)), receiver_(std::move(receiver)) {}
  ~ReceiverHandle() { Close(); }
  ReceiverHandle(const ReceiverHandle&) = delete;
  ReceiverHandle& operator=(const ReceiverHandle&) = delete;

  // Runs `call(receiver)` without the lock and raises what it fails with.
  template <typename Call>
  auto Use(Call call) {
    parts_.raised->Clear();
    return Run(
        [&]() -> decltype(call(*receiver_)) {
          SEGUE_ASSIGN_OR_RETURN(const ReceiverHandle* const outer, BeginCall());
          auto outcome = call(*receiver_);
          EndCall(outer);
          return outcome;
        },
        parts_.raised.get());
  }
  // Waits for a prepare; Ctrl-C aborts it. For calls of Use, in the main thread.
  Status WaitPreparedOrSignal(Receiver& receiver, const std::string& session);
  // InvalidArgument where it would wait for itself: called back from a call of this receiver.
  void Close();

  const std::shared_ptr<StepGate>& gate() const { return parts_.gate; }

 private:
  // What this thread was in a call of before, for EndCall.
  Result<const ReceiverHandle*> BeginCall();
  void EndCall(const ReceiverHandle* outer);

  const OwnProcess process_;
  const Parts parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned calls_ = 0;
  bool closed_ = false;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace segue::python
