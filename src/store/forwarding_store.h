// SPDX-License-Identifier: Apache-2.0
//
// ForwardingStore: another store behind the same face. What a wrapper changes it overrides; the
// rest goes straight through.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace segue {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  Result<std::unique_ptr<StoreWriter>> StartWrite() override { return inner_->StartWrite(); }
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    return inner_->Get(name, size_max);
  }
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override {
    return inner_->GetRange(name, offset, size);
  }
  Result<std::uint64_t> Size(const std::string& name) override { return inner_->Size(name); }
  Result<std::vector<std::string>> List(const std::string& prefix) override {
    return inner_->List(prefix);
  }
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override {
    return inner_->ListFolders(prefix);
  }
  Status Delete(const std::string& name) override { return inner_->Delete(name); }
  Status RemoveStaleTemporaries(std::chrono::seconds age) override {
    return inner_->RemoveStaleTemporaries(age);
  }
  const std::string& url() const override { return inner_->url(); }

 protected:
  Store& inner() const { return *inner_; }

 private:
  const std::shared_ptr<Store> inner_;
};

}  // namespace segue
