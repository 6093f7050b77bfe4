// SPDX-License-Identifier: Apache-2.0
//
// What a server refuses before it listens, and one that cannot have weights. Everything else needs
// a client: tests/e2e/test_live.py.
#include "segue/server.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

TEST(ServerTest, AddressesThatCannotBe) {
  for (const char* listen : {"", "7000", ":7000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                             "127.0.0.1:70000", "127.0.0.1:-1", "0.0.0.0:0", "example.org:80"}) {
    ServeOptions options;
    options.listen = listen;
    EXPECT_EQ(Server::Start(options).status().code(), StatusCode::kInvalidArgument) << listen;
  }
}

TEST(ServerTest, TellsWhyThereAreNoWeights) {
  ServeOptions options;
  options.receiver.store = "/nowhere/at/all";
  options.receiver.name = "server-test";
  const auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_EQ(server.value()->WaitReady().code(), StatusCode::kNotFound);
  EXPECT_TRUE(server.value()->url().starts_with("http://127.0.0.1:"));
  EXPECT_FALSE(server.value()->status().ready);
  server.value()->Stop();
  server.value()->Stop();
}

}  // namespace
}  // namespace segue
