// SPDX-License-Identifier: Apache-2.0
//
// Reading over HTTP: one loop of tries. A try looks at the answer's head before any byte and
// decides what its bytes are; what it keeps stays for the next try only if it can be joined.
#include "store/http_read.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace segue {
namespace {

// "bytes FIRST-LAST/TOTAL".
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t total = 0;

  static std::optional<ContentRange> Parse(std::string_view text) {
    ContentRange range;
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    const auto take = [&](std::uint64_t& number, char end) {
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc()) return false;
      text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
      if (end == '\0') return text.empty();
      if (!text.starts_with(end)) return false;
      text.remove_prefix(1);
      return true;
    };
    const bool whole = take(range.first, '-') && take(range.last, '/') && take(range.total, '\0');
    const bool sound = whole && range.first <= range.last && range.last < range.total;
    return sound ? std::optional(range) : std::nullopt;
  }
};

class Reading {
 public:
  // Without `size` the whole object, at most `size_max` bytes.
  Reading(const HttpObject& object, std::uint64_t offset, std::optional<std::uint64_t> size,
          std::uint64_t size_max)
      : object_(object), offset_(offset), size_(size), size_max_(size_max) {}

  Result<ByteVector> Run() {
    int idle_tries = 0;
    for (int tries = 1;; ++tries) {
      const std::size_t before = bytes_.size();
      Status status = Try();
      if (status.ok()) return std::move(bytes_);
      if (final_) return status.WithContext(object_.what);
      idle_tries = bytes_.size() > before ? 0 : idle_tries + 1;
      if (idle_tries == limits::kStoreTryCountMax || tries == limits::kStoreResumeCountMax) {
        return status.WithContext(object_.what + ", after " + std::to_string(tries) + " tries");
      }
      object_.client.WaitBefore(idle_tries + 1, head_);
    }
  }

 private:
  Status Try() {
    // Without a tag nobody can say that what follows is of the same object.
    if (tag_.empty()) bytes_.clear();
    std::vector<std::string> fields = {"Accept-Encoding: identity"};
    const bool resumed = !bytes_.empty();
    ranged_ = size_.has_value() || resumed;
    if (ranged_) {
      fields.push_back("Range: bytes=" + std::to_string(offset_ + bytes_.size()) + "-" +
                       (size_ ? std::to_string(offset_ + *size_ - 1) : ""));
    }
    if (resumed) fields.push_back("If-Range: " + tag_);
    HttpRequest request = object_.make(fields);
    request.on_head = [this](const HttpHead& head) { return OnHead(head); };
    request.on_body = [this](ByteSpan bytes) { return OnBody(bytes); };
    complete_ = false;
    const HttpReply reply = object_.client.Perform(request);
    head_ = reply.head;
    return Judge(reply);
  }

  Status Judge(const HttpReply& reply) {
    if (complete_) return {};
    if (!reply.refusal.ok()) return reply.refusal;
    if (reply.head.code == 416) return OnBeyondEnd(reply.head);
    Status status = StatusOfReply(reply, "read");
    if (!status.ok()) {
      final_ = !IsTransient(reply);
      return status;
    }
    if (open_end_) return {};
    return Corruption("the answer ended " + std::to_string(part_left_) + " bytes early");
  }

  Status OnHead(const HttpHead& head) {
    const std::string_view encoding = head.Field("content-encoding");
    if (!encoding.empty() && encoding != "identity") {
      return Unsupported("the server sent the encoding '" + QuotedReply(encoding) +
                         "' though identity was asked for");
    }
    if (head.code == 200) return OnWhole(head);
    if (head.code == 206 && ranged_) return OnPart(head);
    return Corruption("the server answered " + std::to_string(head.code) + " to a read");
  }

  // The whole object, asked for or not: never appended to what is there.
  Status OnWhole(const HttpHead& head) {
    bytes_.clear();
    tag_ = head.StrongTag();
    const auto total = head.ContentLength();
    if (!total && head.Field("transfer-encoding") != "chunked") {
      return Corruption("the server does not state the object's size");
    }
    SEGUE_RETURN_IF_ERROR(CheckTotal(total));
    skip_ = offset_;
    if (skip_ > limits::kStoreSkipSizeMax) {
      return Final(Unsupported(
          "the server ignores ranges; to reach offset " + std::to_string(offset_) + " more than " +
          std::to_string(limits::kStoreSkipSizeMax) + " bytes would be read in vain"));
    }
    open_end_ = !total && !size_;
    total_ = total;
    part_left_ = size_.value_or(total.value_or(0));
    complete_ = !open_end_ && part_left_ == 0;
    return {};
  }

  Status OnPart(const HttpHead& head) {
    const auto range = ContentRange::Parse(head.Field("content-range"));
    const std::uint64_t first = offset_ + bytes_.size();
    if (!range || range->first != first || (size_ && range->last >= offset_ + *size_)) {
      return Corruption("the server answered with the range '" +
                        QuotedReply(head.Field("content-range")) + "' to one from byte " +
                        std::to_string(first));
    }
    if (!bytes_.empty() && head.StrongTag() != tag_) {
      bytes_.clear();
      tag_.clear();
      return Corruption("the object became another one while it was read");
    }
    tag_ = head.StrongTag();
    SEGUE_RETURN_IF_ERROR(CheckTotal(range->total));
    total_ = range->total;
    part_left_ = range->last - range->first + 1;
    if (const auto length = head.ContentLength(); length && *length != part_left_) {
      return Corruption("the server states " + std::to_string(*length) + " bytes for a range of " +
                        std::to_string(part_left_));
    }
    skip_ = 0;
    open_end_ = false;
    return {};
  }

  Status CheckTotal(std::optional<std::uint64_t> total) {
    if (!total) return {};
    if (!size_ && *total > size_max_) return TooLarge(std::to_string(*total));
    if (size_ && (offset_ > *total || *size_ > *total - offset_)) return TooShort(*total);
    return {};
  }

  Status TooLarge(const std::string& size) {
    return Final(
        ResourceExhausted("has " + size + " bytes, the limit is " + std::to_string(size_max_)));
  }

  Status TooShort(std::uint64_t total) {
    return Final(Corruption("has " + std::to_string(total) + " bytes; " + std::to_string(*size_) +
                            " bytes from offset " + std::to_string(offset_) + " were expected"));
  }

  // 416: the object ends before the range. Where it did not before, it is another one.
  Status OnBeyondEnd(const HttpHead& head) {
    if (!bytes_.empty()) {
      bytes_.clear();
      tag_.clear();
      return Corruption("the server has no bytes where the object had some");
    }
    const std::string_view total = head.Field("content-range");
    return Final(Corruption("ends before the range of " + std::to_string(size_.value_or(0)) +
                            " bytes from offset " + std::to_string(offset_) +
                            " that was expected (" + QuotedReply(total) + ")"));
  }

  Status OnBody(ByteSpan bytes) {
    const std::uint64_t dropped = std::min<std::uint64_t>(skip_, bytes.size());
    skip_ -= dropped;
    bytes = bytes.subspan(dropped);
    if (open_end_) {
      if (bytes.size() > size_max_ - bytes_.size()) return TooLarge("more");
      AppendBytes(bytes_, bytes);
      return {};
    }
    const std::uint64_t taken = std::min<std::uint64_t>(part_left_, bytes.size());
    AppendBytes(bytes_, bytes.first(taken));
    part_left_ -= taken;
    if (part_left_ > 0) return {};
    if (IsWhole()) {
      complete_ = true;
      // Of a whole object that was not asked for, the rest is not read.
      return taken < bytes.size() ? Corruption("that is enough") : Status();
    }
    return taken < bytes.size() ? Corruption("the server sent more than its range") : Status();
  }

  bool IsWhole() const {
    const auto wanted = size_ ? size_ : total_;
    return wanted && bytes_.size() == *wanted;
  }

  Status Final(Status status) {
    final_ = true;
    return status;
  }

  const HttpObject& object_;
  const std::uint64_t offset_;
  const std::optional<std::uint64_t> size_;
  const std::uint64_t size_max_;

  ByteVector bytes_;  // From `offset_` on.
  std::string tag_;   // Of the object that they are of; empty: unknown.
  HttpHead head_;     // Of the last answer.
  bool final_ = false;

  // Of the try that runs.
  bool ranged_ = false;
  bool complete_ = false;
  bool open_end_ = false;  // Nobody said where the object ends.
  std::optional<std::uint64_t> total_;
  std::uint64_t skip_ = 0;       // Bytes to drop before the first that is wanted.
  std::uint64_t part_left_ = 0;  // Bytes of the answer that are wanted and have not come.
};

}  // namespace

Result<ByteVector> ReadHttpObject(const HttpObject& object, std::uint64_t size_max) {
  return Reading(object, 0, std::nullopt, size_max).Run();
}

Result<ByteVector> ReadHttpRange(const HttpObject& object, std::uint64_t offset,
                                 std::uint64_t size) {
  return Reading(object, offset, size, size).Run();
}

std::string DescribeListing(const std::string& folder, const std::string& url) {
  const std::string of = "of store '" + url + "'";
  return folder.empty() ? "list of names " + of : "list of names below '" + folder + "' " + of;
}

}  // namespace segue
