// SPDX-License-Identifier: Apache-2.0
//
// Signals: those that end a verb which runs until it is told to stop, and those by which the system
// says what is an error like any other here.
#pragma once

#include <chrono>

namespace segue::cli {

// From now on SIGINT and SIGTERM are noted rather than ending the program.
void CatchStopSignals();
bool StopRequested();
// Sleeps until one arrives, or until the time has passed.
void WaitForStop();
void WaitForStop(std::chrono::milliseconds time);

// From now on a write beyond the limit of a file's size (SIGXFSZ) is a failed write, and a mapped
// file that loses its bytes (SIGBUS) ends the program with a sentence and an exit code.
void TurnSignalsIntoErrors(bool json);

}  // namespace segue::cli
