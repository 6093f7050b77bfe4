// SPDX-License-Identifier: Apache-2.0
//
// Connections: cpp-httplib's server with connections of our own below it. The library's timeouts
// begin anew with every byte, and a fixed pool of its threads can be held up by as many clients
// that send nothing. Here a whole request has a deadline, and at the largest number of connections
// the one that has kept us waiting longest gives way to a new one. What must hold: a connection is
// only ever shut down while it is open and in the table, so never another one under its number; and
// memory that runs out ends a connection at most.
#pragma once

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace segue {

struct ConnectionLimits {
  unsigned connections = 1;           // Served at once.
  std::chrono::milliseconds idle{0};  // Between two requests.
  // From the first byte of a request to the last of its head; or of its body, where bodies are
  // small (`body_too`).
  std::chrono::milliseconds request{0};
  bool body_too = false;
  std::chrono::milliseconds silence{0};  // For one byte to come, or to be taken.
};

class Connection;

// All open connections. Thread-safe.
class ConnectionTable {
 public:
  void Add(Connection& connection);
  void Remove(Connection& connection);
  // Around each wait for a client that may be ended; false: it was ended.
  bool BeginWait(Connection& connection);
  bool EndWait(Connection& connection);
  // Ends the wait that has lasted longest; where nobody waits, the next one that begins.
  void EndOldestWait();
  // No more than this many connections are to give way yet.
  void SetWantedMax(std::size_t count);
  // Ends every wait, now and later.
  void EndAllWaits();

 private:
  std::mutex mutex_;
  std::set<Connection*> open_;
  std::size_t wanted_ = 0;
  bool closed_ = false;
};

// A thread for each connection, as they come, and no more than `threads`.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  using Outcome = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

  ConnectionThreads(unsigned threads, ConnectionTable& table)
      : threads_max_(threads), table_(table) {
    threads_.reserve(threads);  // A thread that is made has its place.
  }

  Outcome enqueue(std::function<void()> task) override;
  void shutdown() override;

 private:
  void Work();

  const unsigned threads_max_;
  ConnectionTable& table_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool ends_ = false;
  std::vector<std::jthread> threads_;
};

class ConnectionServer final : public httplib::Server {
 public:
  // Before it listens.
  void SetLimits(const ConnectionLimits& limits);
  // Once it is bound. The library lets five clients wait to be accepted; the next one's system
  // tries again after a second.
  void LetClientsQueue();
  // For a handler that answers without the request's body, which would pass for the next request.
  static void EndAfterAnswer();
  // The field Range of the request that this thread answers; the library does not see it. Empty
  // where there is none, or several.
  static const std::string& AskedRange();
  // Waits for clients end at once; what is being answered goes on.
  void EndAllWaits() { table_.EndAllWaits(); }

 private:
  bool process_and_close_socket(socket_t socket) override;
  bool ServeConnection(socket_t socket);
  template <typename Stream>
  bool Process(Stream& stream, bool last, bool& closed);

  ConnectionLimits limits_;
  ConnectionTable table_;
};

}  // namespace segue
