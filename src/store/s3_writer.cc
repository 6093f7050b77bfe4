// SPDX-License-Identifier: Apache-2.0
//
// S3Writer: PUT, or CreateMultipartUpload, UploadPart and CompleteMultipartUpload.
#include "store/s3_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"
#include "store/s3_store.h"

namespace segue {
namespace {

// Of a part this much is hashed at a time.
constexpr std::uint64_t kPieceSize = 1ull << 20;

bool MayPass(std::string_view code) {
  return code == "InternalError" || code == "SlowDown" || code == "ServiceUnavailable" ||
         code == "OperationAborted" || code == "ConditionalRequestConflict";
}

}  // namespace

Status AbortUpload(S3Client& client, const std::string& key, const std::string& upload) {
  S3Request request;
  request.method = "DELETE";
  request.key = key;
  request.query = {{"uploadId", upload}};
  const HttpReply reply = client.Perform(request);
  if (reply.head.code == 404) return {};
  return StatusOfS3Reply(reply, "abort of an upload to '" + key + "'");
}

Result<PutOutcome> S3Writer::Commit(const std::string& name) {
  SEGUE_CHECK(!std::exchange(spent_, true));
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  SEGUE_RETURN_IF_ERROR(spool_.Append({}));  // An earlier failure: half an object.
  name_ = name;
  hash_ = spool_.Finish().ToHex();
  SEGUE_ASSIGN_OR_RETURN(const Seen seen, Look());
  if (seen != Seen::kNothing) return PutOutcome::kAlreadyThere;
  SEGUE_RETURN_IF_ERROR(store_.CheckCondition());
  return spool_.size() <= limits::kS3PartSize ? Put() : PutParts();
}

S3Request S3Writer::MakeRequest(const std::string& method) const {
  S3Request request;
  request.method = method;
  request.key = store_.client().Key(name_);
  return request;
}

// What is under our name now.
Result<S3Writer::Seen> S3Writer::Look() {
  const HttpReply reply = store_.client().Perform(MakeRequest("HEAD"));
  if (reply.head.code == 404) return Seen::kNothing;
  SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(reply, store_.Describe(name_)));
  const bool ours = reply.head.Field(kS3HashField) == hash_ &&
                    reply.head.ContentLength() == std::optional(spool_.size());
  return ours ? Seen::kOurs : Seen::kAnother;
}

// The condition said no. After an answer that was lost, what is there may be by an earlier try.
Result<PutOutcome> S3Writer::Judge(bool ambiguous) {
  if (!ambiguous) return PutOutcome::kAlreadyThere;
  SEGUE_ASSIGN_OR_RETURN(const Seen seen, Look());
  return seen == Seen::kOurs ? PutOutcome::kCreated : PutOutcome::kAlreadyThere;
}

// The server said yes: believed once it shows the object.
Result<PutOutcome> S3Writer::Confirm() {
  SEGUE_ASSIGN_OR_RETURN(const Seen seen, Look());
  if (seen == Seen::kOurs) return PutOutcome::kCreated;
  return Corruption(store_.Describe(name_) +
                    (seen == Seen::kNothing ? ": the server took it, yet it is not there"
                                            : ": the server took it, yet another one is there"));
}

Result<PutOutcome> S3Writer::Put() {
  S3Request request = MakeRequest("PUT");
  request.fields = {"If-None-Match: *", "Content-Type: application/octet-stream"};
  request.signed_fields = {{kS3HashField, hash_}};
  request.has_body = true;
  request.body_size = spool_.size();
  request.body_hash = hash_;
  request.body = [this](std::uint64_t offset, MutableByteSpan target) {
    return spool_.Read(offset, target);
  };
  bool ambiguous = false;
  for (int tries = 1;; ++tries) {
    const HttpReply reply = store_.client().Perform(request, &ambiguous);
    if (reply.head.code == 412) return Judge(ambiguous);
    // 409: another put of the same name is under way.
    if (reply.head.code == 409 && tries < limits::kStoreTryCountMax) {
      store_.client().http().WaitBefore(tries, reply.head);
      continue;
    }
    SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(reply, store_.Describe(name_)));
    return Confirm();
  }
}

Result<PutOutcome> S3Writer::PutParts() {
  SEGUE_ASSIGN_OR_RETURN(const std::string upload, StartUpload());
  const std::uint64_t part_size =
      std::max(limits::kS3PartSize, DivideUp(spool_.size(), limits::kS3PartCountMax));
  const auto run = [&]() -> Result<PutOutcome> {
    std::vector<std::string> tags;
    for (std::uint64_t offset = 0; offset < spool_.size(); offset += part_size) {
      const std::uint64_t size = std::min(part_size, spool_.size() - offset);
      SEGUE_ASSIGN_OR_RETURN(std::string tag, PutPart(upload, tags.size() + 1, offset, size));
      tags.push_back(std::move(tag));
    }
    return Complete(upload, tags);
  };
  Result<PutOutcome> outcome = run();
  if (outcome.ok() && outcome.value() == PutOutcome::kCreated) return outcome;
  // What cannot be aborted shows to no reader; RemoveStaleTemporaries() has it later.
  (void)AbortUpload(store_.client(), store_.client().Key(name_), upload);
  return outcome;
}

Result<std::string> S3Writer::StartUpload() {
  S3Request request = MakeRequest("POST");
  request.query = {{"uploads", ""}};
  request.fields = {"Content-Type: application/octet-stream"};
  request.signed_fields = {{kS3HashField, hash_}};
  request.has_body = true;
  request.body_hash = HashSha256({}).ToHex();
  SEGUE_ASSIGN_OR_RETURN(const XmlElement root,
                         store_.client().PerformXml(request, store_.Describe(name_)));
  std::string upload(root.ChildText("UploadId"));
  if (root.name == "InitiateMultipartUploadResult" && !upload.empty()) return upload;
  return Corruption(store_.Describe(name_) +
                    ": the server began no upload: " + DescribeS3Error(root));
}

// The part's ETag, which the completion repeats and nobody reads.
Result<std::string> S3Writer::PutPart(const std::string& upload, std::uint64_t number,
                                      std::uint64_t offset, std::uint64_t size) {
  Sha256Hasher hasher;
  ByteVector piece;
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    piece.resize(std::min(kPieceSize, size - done));
    SEGUE_RETURN_IF_ERROR(spool_.Read(offset + done, piece));
    hasher.Add(piece);
  }
  S3Request request = MakeRequest("PUT");
  request.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  request.has_body = true;
  request.body_size = size;
  request.body_hash = hasher.Finish().ToHex();
  request.body = [this, offset](std::uint64_t at, MutableByteSpan target) {
    return spool_.Read(offset + at, target);
  };
  const HttpReply reply = store_.client().Perform(request);
  const std::string what = store_.Describe(name_) + ", part " + std::to_string(number);
  SEGUE_RETURN_IF_ERROR(StatusOfS3Reply(reply, what));
  std::string tag(reply.head.Field("etag"));
  if (tag.empty()) return Corruption(what + ": the server gave it no ETag");
  return tag;
}

Result<PutOutcome> S3Writer::Complete(const std::string& upload,
                                      const std::vector<std::string>& tags) {
  std::string text = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < tags.size(); ++i) {
    text += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" +
            EscapeXml(tags[i]) + "</ETag></Part>";
  }
  text += "</CompleteMultipartUpload>";
  S3Request request = MakeRequest("POST");
  request.query = {{"uploadId", upload}};
  request.fields = {"If-None-Match: *", "Content-Type: application/xml"};
  request.has_body = true;
  request.body_size = text.size();
  request.body_hash = HashSha256(AsBytes(text)).ToHex();
  request.body = [&](std::uint64_t offset, MutableByteSpan target) {
    std::copy_n(AsBytes(text).begin() + static_cast<std::ptrdiff_t>(offset), target.size(),
                target.begin());
    return Status();
  };
  for (int tries = 1;; ++tries) {
    HttpReply reply;
    const Result<XmlElement> root =
        store_.client().PerformXml(request, store_.Describe(name_), &reply);
    // Without a retry of ours it cannot be our own object that the condition sees; with one, or
    // where the upload is no more, it may.
    if (reply.head.code == 412 || reply.head.code == 404) {
      SEGUE_ASSIGN_OR_RETURN(const Seen seen, Look());
      if (seen == Seen::kOurs) return PutOutcome::kCreated;
      if (reply.head.code == 412) return PutOutcome::kAlreadyThere;
      return root.status();
    }
    const bool conflict = reply.head.code == 409;
    if (!root.ok() && !conflict) return root.status();
    // Also with status 200 the server may say that it failed.
    if (root.ok() && root->name == "CompleteMultipartUploadResult") return Confirm();
    const std::string why = root.ok() ? DescribeS3Error(root.value()) : root.status().message();
    const bool again = conflict || MayPass(root->ChildText("Code"));
    if (!again || tries == limits::kStoreTryCountMax) {
      return Unavailable(store_.Describe(name_) + ": the upload was not completed: " + why);
    }
    store_.client().http().WaitBefore(tries, reply.head);
  }
}

}  // namespace segue
