// SPDX-License-Identifier: Apache-2.0
//
// The dir store against what every transport has to pass. Stores over HTTP and S3 do so in
// src/server and with a server that tests/e2e starts.
#include "store/testing.h"

namespace segue {
namespace {

class DirTransport {
 public:
  static bool IsThere() { return true; }
  std::unique_ptr<Store> Open() { return folder_.OpenDirStore(); }

 private:
  TemporaryFolder folder_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Dir, StoreConformance, DirTransport);

}  // namespace
}  // namespace segue
