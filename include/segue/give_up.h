// SPDX-License-Identifier: Apache-2.0
//
// Give-up scope: ends what a thread waits for at a store. A server that says nothing is waited for
// up to minutes, several calls deep (Receiver::Open, Versions, Rebuild, ...); a caller who may have
// to go before, as a key was pressed say, says so around the call.
#pragma once

#include <functional>

namespace segue {

// While it lives, `given_up` is asked at least every second while this thread waits for the server
// of a store (http, s3), and between tries: true ends the wait (Unavailable). It should stay true
// then, so that what follows in the call ends too. Scopes may lie in each other: one that says yes
// is enough. A directory's store is waited for as the file system has it (docs/protocol.md, 9).
class GiveUpScope {
 public:
  explicit GiveUpScope(std::function<bool()> given_up);
  ~GiveUpScope();
  GiveUpScope(const GiveUpScope&) = delete;
  GiveUpScope& operator=(const GiveUpScope&) = delete;

  // Whether any of this thread's says yes.
  static bool IsGivenUp();

 private:
  const std::function<bool()> given_up_;
  GiveUpScope* outer_ = nullptr;
  GiveUpScope* inner_ = nullptr;
};

}  // namespace segue
