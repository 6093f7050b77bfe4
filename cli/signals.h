// SPDX-License-Identifier: Apache-2.0
//
// Signals that end a verb which runs until it is told to stop.
#pragma once

namespace segue::cli {

// From now on SIGINT and SIGTERM are noted rather than ending the program.
void CatchStopSignals();
bool StopRequested();
// Sleeps until one arrives.
void WaitForStop();

}  // namespace segue::cli
