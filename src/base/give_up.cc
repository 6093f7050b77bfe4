// SPDX-License-Identifier: Apache-2.0
//
// Give-up scope: a list for each thread. Scopes may end in any order, as the simulator runs many
// stacks in one thread.
#include "segue/give_up.h"

#include <utility>

namespace segue {
namespace {

thread_local GiveUpScope* innermost = nullptr;

}  // namespace

GiveUpScope::GiveUpScope(std::function<bool()> given_up)
    : given_up_(std::move(given_up)), outer_(innermost) {
  if (outer_ != nullptr) outer_->inner_ = this;
  innermost = this;
}

GiveUpScope::~GiveUpScope() {
  (inner_ != nullptr ? inner_->outer_ : innermost) = outer_;
  if (outer_ != nullptr) outer_->inner_ = inner_;
}

bool GiveUpScope::IsGivenUp() {
  for (const GiveUpScope* scope = innermost; scope != nullptr; scope = scope->outer_) {
    if (scope->given_up_()) return true;
  }
  return false;
}

}  // namespace segue
