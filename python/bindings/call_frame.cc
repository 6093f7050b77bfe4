// SPDX-License-Identifier: Apache-2.0
//
// Call frame: a list through the frames of each thread, the innermost first.
#include "bindings/call_frame.h"

namespace segue::python {
namespace {

thread_local CallFrame* innermost = nullptr;

}  // namespace

CallFrame::CallFrame(const RaisedInCallback* owner, Kind kind)
    : owner_(owner), kind_(kind), outer_(innermost) {
  innermost = this;
}

CallFrame::~CallFrame() { innermost = outer_; }

bool CallFrame::IsInside(const RaisedInCallback* owner) {
  for (const CallFrame* frame = innermost; frame != nullptr; frame = frame->outer_) {
    if (frame->owner_ == owner) return true;
  }
  return false;
}

bool CallFrame::IsOwnThread(const RaisedInCallback* owner) {
  const CallFrame* outermost = nullptr;
  for (const CallFrame* frame = innermost; frame != nullptr; frame = frame->outer_) {
    if (frame->owner_ == owner) outermost = frame;
  }
  return outermost != nullptr && outermost->kind_ == Kind::kCallback;
}

CallFrame* CallFrame::CallOf(const RaisedInCallback* owner) {
  for (CallFrame* frame = innermost; frame != nullptr; frame = frame->outer_) {
    if (frame->owner_ == owner && frame->kind_ == Kind::kCall) return frame;
  }
  return nullptr;
}

}  // namespace segue::python
