// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: the whole error model. Operating errors (files, input, network) are values
// that the caller must look at; nothing in Segue throws. A code says what the caller should do, the
// message names the thing, what was expected and what was found. docs/protocol.md has the table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace segue {

enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,    // The request makes no sense: fix the call.
  kNotFound = 2,           // No such version, tensor or file: look again.
  kVersionMismatch = 3,    // The delta's base is not what is loaded: ask for another delta.
  kCorruption = 4,         // Bytes disagree with their digest or format: fetch again, report.
  kUnsupported = 5,        // Unknown format version, codec or feature: choose another.
  kResourceExhausted = 6,  // A named limit, or memory: free or lower, then retry.
  kUnavailable = 7,        // Transient (busy, input/output): retry with backoff.
  kTainted = 8,            // Weights may be half changed: resolve or rebuild, never retry.
  kInternal = 9,           // A bug that could be reported instead of crashed on: file it.
};

// The code's name in messages and JSON, e.g. "version_mismatch".
std::string_view StatusCodeName(StatusCode code);

// An outcome without a value. Success carries no allocation.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ == nullptr ? StatusCode::kOk : rep_->code; }
  const std::string& message() const;
  // "version_mismatch: ..." or "ok".
  std::string ToString() const;
  // The same code with `context` and ": " put before the message.
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status VersionMismatch(std::string message);
Status Corruption(std::string message);
Status Unsupported(std::string message);
Status ResourceExhausted(std::string message);
Status Unavailable(std::string message);
Status Tainted(std::string message);
Status Internal(std::string message);

// Ends the program with the status on stderr; used by Result::value() alone.
[[noreturn]] void ResultDie(const Status& status);

// A value or a non-OK status. value() on a failure is a bug of the caller and ends the program.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    if (std::get<1>(state_).ok()) state_.template emplace<1>(Internal("OK status used as failure"));
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T& value() & { return *Checked(); }
  const T& value() const& { return *const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(*Checked()); }
  T* operator->() { return Checked(); }
  const T* operator->() const { return const_cast<Result*>(this)->Checked(); }
  T& operator*() { return *Checked(); }

 private:
  T* Checked() {
    if (!ok()) ResultDie(std::get<1>(state_));
    return &std::get<0>(state_);
  }
  std::variant<T, Status> state_;
};

#define SEGUE_CONCAT_INNER(a, b) a##b
#define SEGUE_CONCAT(a, b) SEGUE_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function unless it is OK.
#define SEGUE_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (::segue::Status segue_status = (expr); !segue_status.ok()) return segue_status; \
  } while (false)

// Declares or assigns `target` from the value of a Result, or returns its status.
#define SEGUE_ASSIGN_OR_RETURN(target, expr) \
  SEGUE_ASSIGN_OR_RETURN_INNER(SEGUE_CONCAT(segue_result_, __LINE__), target, expr)
#define SEGUE_ASSIGN_OR_RETURN_INNER(result, target, expr) \
  auto result = (expr);                                    \
  if (!result.ok()) return result.status();                \
  target = std::move(result).value()

}  // namespace segue
