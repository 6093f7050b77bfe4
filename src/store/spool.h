// SPDX-License-Identifier: Apache-2.0
//
// Spool: an object on its way to a store on a network. Such a store needs name, size and hash
// before the first byte, a writer has them after the last: so the bytes wait in memory, from
// kSpoolMemoryMax on in a file without a name below $TMPDIR or /tmp. It can be read again and
// again, for retries.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "segue/status.h"

namespace segue {

// One thread at a time.
class Spool {
 public:
  Spool() = default;
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // After a failure every further call fails.
  Status Append(ByteSpan bytes);
  // Fills `target` from `offset`; the bytes are there.
  Status Read(std::uint64_t offset, MutableByteSpan target) const;
  std::uint64_t size() const { return size_; }
  // Of all bytes; nothing may be appended afterwards.
  Sha256 Finish();

 private:
  Status MoveToFile();
  Status WriteFile(ByteSpan bytes);

  ByteVector memory_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  Sha256Hasher hasher_;
  Status failure_;
};

}  // namespace segue
