// SPDX-License-Identifier: Apache-2.0
//
// S3Writer: one object on its way into a bucket: in one request up to kS3PartSize, in parts beyond.
// What must hold: success is told only after the object was looked at and has our size and hash; an
// upload that fails is aborted; what was there before is never touched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/s3_client.h"
#include "store/spool.h"
#include "store/store.h"

namespace segue {

class S3Store;

class S3Writer : public StoreWriter {
 public:
  explicit S3Writer(S3Store& store) : store_(store) {}

  Status Append(ByteSpan bytes) override { return spool_.Append(bytes); }
  Result<PutOutcome> Commit(const std::string& name) override;

 private:
  enum class Seen { kNothing, kOurs, kAnother };

  Result<Seen> Look();
  Result<PutOutcome> Put();
  Result<PutOutcome> PutParts();
  Result<std::string> StartUpload();
  Result<std::string> PutPart(const std::string& upload, std::uint64_t number, std::uint64_t offset,
                              std::uint64_t size);
  Result<PutOutcome> Complete(const std::string& upload, const std::vector<std::string>& tags);
  Result<PutOutcome> Judge(bool ambiguous);
  Result<PutOutcome> Confirm();
  S3Request MakeRequest(const std::string& method) const;

  S3Store& store_;
  Spool spool_;
  std::string name_;
  std::string hash_;
  bool spent_ = false;
};

Status AbortUpload(S3Client& client, const std::string& key, const std::string& upload);

}  // namespace segue
