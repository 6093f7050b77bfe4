// SPDX-License-Identifier: Apache-2.0
//
// JsonFields: a flat JSON object with a format name, for the small files that Segue keeps for
// itself in `.segue/`. Every field is typed and required; a missing or wrong one is Corruption that
// names it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/digest.h"
#include "base/hash.h"
#include "segue/status.h"

namespace segue {

class JsonFields {
 public:
  explicit JsonFields(const std::string& format);
  // Reads a file, never through a symlink, whose "format" must be `format`, with format_version 1.
  static Result<JsonFields> Read(const std::string& path, const std::string& format);
  ~JsonFields();
  JsonFields(JsonFields&&) noexcept;
  JsonFields& operator=(JsonFields&&) noexcept;

  void Set(const std::string& name, const std::string& value);
  void Set(const std::string& name, std::uint64_t value);
  std::string ToText() const;

  Status Get(const std::string& name, std::string& value) const;
  Status Get(const std::string& name, std::uint64_t& value) const;
  Status Get(const std::string& name, Digest& value) const;
  Status Get(const std::string& name, Sha256& value) const;

 private:
  struct Object;
  std::unique_ptr<Object> object_;
  std::string path_;
};

}  // namespace segue
