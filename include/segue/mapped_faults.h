// SPDX-License-Identifier: Apache-2.0
//
// Mapped faults: Segue reads checkpoints through mappings. When a mapped file shrinks under it, or
// its device fails, the system sends SIGBUS, which ends a program without a word. A program may ask
// for a sentence instead; the library by itself leaves the program's signals alone.
#pragma once

#include <string_view>

namespace segue {

// What to do about a fault; called in a signal handler, so it may use async-signal-safe calls alone
// (write, _exit). `sentence` names the file and has neither quotes nor control characters in it.
// `tainted`: an apply in place had begun, the weights may be half changed.
using MappedFaultReport = void (*)(std::string_view sentence, bool tainted);

// From now on `report` is called on such a fault, once; when it returns, the program ends by the
// signal as before. Faults of memory itself are not caught. Call it once, early in main().
void CatchMappedFaults(MappedFaultReport report);

}  // namespace segue
