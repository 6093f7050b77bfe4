// SPDX-License-Identifier: Apache-2.0
//
// Connections: one socket as the library's Stream, the table of them, their threads, and the loop
// over the requests of one.
#include "server/connections.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "base/threads.h"
#include "server/request_head.h"

namespace segue {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLingerMax{2'000};

class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionLimits& limits, ConnectionTable& table)
      : socket_(socket), limits_(limits), table_(table) {
    table_.Add(*this);
  }
  ~Connection() override { table_.Remove(*this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Until the head of a request is there, whole and sound; false: none will be.
  bool AwaitRequest() {
    in_head_ = true;
    since_ = Clock::now();
    if (begin_ == end_ && !AwaitBytes(since_ + limits_.idle)) return false;
    since_ = Clock::now();
    deadline_ = since_ + limits_.request;
    std::string text;
    while (in_head_) {
      if (begin_ == end_ && !Fill()) return false;
      TakeHead(text);
      if (text.size() <= limits::kHttpHeaderSizeMax) continue;
      refusal_ = "431 Request Header Fields Too Large";
      return false;
    }
    std::optional<RequestHead> head = RequestHead::Parse(text);
    if (!head) refusal_ = "400 Bad Request";
    head_ = std::move(head).value_or(RequestHead());
    head_begin_ = 0;
    return refusal_.empty();
  }

  const RequestHead& head() const { return head_; }

  // What is to be said of a request that did not come whole; empty: nothing.
  std::string_view refusal() const { return refusal_; }

  bool is_readable() const override {
    return head_begin_ < head_.text.size() || begin_ < end_ || IsReady(POLLIN, 0);
  }
  bool is_writable() const override { return IsReady(POLLOUT, Count(limits_.silence)); }

  ssize_t read(char* data, std::size_t size) override {
    if (head_begin_ < head_.text.size()) {
      const std::size_t count = head_.text.copy(data, size, head_begin_);
      head_begin_ += count;
      return static_cast<ssize_t>(count);
    }
    if (begin_ == end_ && !Fill()) return -1;
    const std::size_t count = std::min(size, end_ - begin_);
    std::memcpy(data, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  // All of it, or -1.
  ssize_t write(const char* data, std::size_t size) override {
    if (!refusal_.empty()) return -1;  // The caller only knows that the request ended early.
    return Send({data, size}) ? static_cast<ssize_t>(size) : -1;
  }
  using httplib::Stream::write;

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EINTR && (errno != EAGAIN || !is_writable())) {
        return false;
      }
    }
    return true;
  }

  // What the client still sends is dropped for a while: closed at once, its system might drop our
  // answer before it was read.
  void Linger() {
    if (made_way_) return;
    ::shutdown(socket_, SHUT_WR);
    in_head_ = true;
    const Clock::time_point end = Clock::now() + std::min(limits_.request, kLingerMax);
    while (AwaitBytes(end) && Clock::now() < end) {
      if (::recv(socket_, buffer_.data(), buffer_.size(), 0) <= 0) return;
    }
  }

  // Nobody here asks where a client is.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  friend class ConnectionTable;

  static int Count(Clock::duration time) {
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
  }

  bool IsReady(short events, int milliseconds) const {
    pollfd poll{socket_, events, 0};
    int ready = 0;
    do ready = ::poll(&poll, 1, milliseconds);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
  }

  // Until there is something to read, or the time is over. Where the client is asked for the rest
  // of something large it is not made to give way to others.
  bool AwaitBytes(Clock::time_point end) {
    if (IsReady(POLLIN, 0)) return true;
    const bool gives_way = in_head_ || limits_.body_too;
    made_way_ = gives_way && !table_.BeginWait(*this);
    if (made_way_) return false;
    const Clock::duration left = std::max(end - Clock::now(), Clock::duration::zero());
    const bool ready = IsReady(POLLIN, Count(left));
    made_way_ = gives_way && !table_.EndWait(*this);
    return ready && !made_way_;
  }

  bool Fill() {
    const bool timed = in_head_ || limits_.body_too;
    const Clock::time_point silent = Clock::now() + limits_.silence;
    const Clock::time_point end = timed ? std::min(deadline_, silent) : silent;
    // Bytes that are there already do not make a request whole that is late.
    if ((timed && Clock::now() >= deadline_) || !AwaitBytes(end)) {
      refusal_ = "408 Request Timeout";
      return false;
    }
    ssize_t got = 0;
    do got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
    return true;
  }

  // Moves what has come to `text`, as far as the head goes: to the first empty line, however the
  // lines end.
  void TakeHead(std::string& text) {
    while (in_head_ && begin_ < end_) {
      text += buffer_[begin_++];
      if (text.back() != '\n') continue;
      const std::string_view before = std::string_view(text).substr(0, text.size() - 1);
      in_head_ =
          !(before.empty() || before == "\r" || before.ends_with('\n') || before.ends_with("\n\r"));
    }
  }

  const int socket_;
  const ConnectionLimits& limits_;
  ConnectionTable& table_;
  Clock::time_point deadline_;
  std::array<char, 16384> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  RequestHead head_;
  std::size_t head_begin_ = 0;
  bool in_head_ = true;
  bool made_way_ = false;
  std::string_view refusal_;
  // The table's: since when a client has kept us waiting, whether it does now, whether it may.
  Clock::time_point since_;
  bool waits_ = false;
  bool ended_ = false;
};

void ConnectionTable::Add(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connection.ended_ = closed_;
  open_.insert(&connection);
}

void ConnectionTable::Remove(Connection& connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(&connection);
}

bool ConnectionTable::BeginWait(Connection& connection) {
  const std::lock_guard lock(mutex_);
  const bool gives_way = wanted_ > 0;
  if (gives_way) --wanted_;
  connection.waits_ = !connection.ended_ && !closed_ && !gives_way;
  return connection.waits_;
}

bool ConnectionTable::EndWait(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connection.waits_ = false;
  return !connection.ended_;
}

void ConnectionTable::EndOldestWait() {
  const std::lock_guard lock(mutex_);
  Connection* oldest = nullptr;
  for (Connection* const connection : open_) {
    const bool may = connection->waits_ && !connection->ended_;
    if (may && (oldest == nullptr || connection->since_ < oldest->since_)) oldest = connection;
  }
  if (oldest == nullptr) {
    ++wanted_;
    return;
  }
  oldest->ended_ = true;
  ::shutdown(oldest->socket_, SHUT_RD);
}

void ConnectionTable::SetWantedMax(std::size_t count) {
  const std::lock_guard lock(mutex_);
  wanted_ = std::min(wanted_, count);
}

void ConnectionTable::EndAllWaits() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (Connection* const connection : open_) {
    if (!connection->waits_) continue;
    connection->ended_ = true;
    ::shutdown(connection->socket_, SHUT_RD);
  }
}

namespace {
// No memory is left to queue the connection that this thread has accepted.
thread_local bool turned_away = false;
}  // namespace

ConnectionThreads::Outcome ConnectionThreads::enqueue(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  try {
    tasks_.push_back(std::move(task));
  } catch (const std::bad_alloc&) {
    turned_away = true;
    task();  // Closes the connection.
    turned_away = false;
    return Outcome(true);
  }
  // Who begins is one less that is idle, but only once it has got that far.
  const bool has_thread = tasks_.size() <= idle_;
  if (!has_thread && threads_.size() < threads_max_) {
    auto made = MakeThreads(1, [this](unsigned) { Work(); });
    std::move(made.begin(), made.end(), std::back_inserter(threads_));
  } else if (!has_thread) {
    table_.EndOldestWait();
  }
  changed_.notify_one();
  return Outcome(true);
}

void ConnectionThreads::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    table_.SetWantedMax(tasks_.size());
    lock.unlock();
    task();
    lock.lock();
  }
}

void ConnectionThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  threads_.clear();  // Joins.
}

void ConnectionServer::SetLimits(const ConnectionLimits& limits) {
  limits_ = limits;
  new_task_queue = [this] { return new ConnectionThreads(limits_.connections, table_); };
}

namespace {
// Of the request that this thread answers.
thread_local bool end_after_answer = false;
thread_local std::string asked_range;
}  // namespace

void ConnectionServer::EndAfterAnswer() { end_after_answer = true; }

const std::string& ConnectionServer::AskedRange() { return asked_range; }

void ConnectionServer::LetClientsQueue() { (void)::listen(svr_sock_, SOMAXCONN); }

// The library's releases differ in what they want to be told of the client's address: nothing.
template <typename Stream>
bool ConnectionServer::Process(Stream& stream, bool last, bool& closed) {
  if constexpr (requires { this->process_request(stream, last, closed, nullptr); }) {
    return this->process_request(stream, last, closed, nullptr);
  } else {
    return this->process_request(stream, "", 0, "", 0, last, closed, nullptr);
  }
}

bool ConnectionServer::process_and_close_socket(socket_t socket) {
  bool answered = false;
  try {
    answered = !turned_away && ServeConnection(socket);
  } catch (const std::bad_alloc&) {  // The connection ends, the server does not.
  }
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return answered;
}

bool ConnectionServer::ServeConnection(socket_t socket) {
  bool answered = false;
  Connection connection(socket, limits_, table_);
  std::size_t left = keep_alive_max_count_;
  bool closed = false;
  while (left > 0 && !closed && svr_sock_ != INVALID_SOCKET && connection.AwaitRequest()) {
    end_after_answer = connection.head().is_last;
    asked_range = connection.head().range;
    answered = Process(connection, left == 1, closed);
    // The library may think that it has answered what ended early.
    closed = closed || std::exchange(end_after_answer, false) || !connection.refusal().empty();
    if (!answered) break;
    --left;
  }
  if (!connection.refusal().empty()) {
    connection.Send("HTTP/1.1 " + std::string(connection.refusal()) +
                    "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  }
  if (closed || !connection.refusal().empty()) connection.Linger();
  return answered;
}

}  // namespace segue
