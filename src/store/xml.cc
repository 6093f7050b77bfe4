// SPDX-License-Identifier: Apache-2.0
//
// XML: one pass, front to back. Nesting is an explicit stack, so that depth costs no stack of ours.
#include "store/xml.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/limits.h"

namespace segue {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool IsNameByte(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

void AppendUtf8(std::string& target, unsigned code) {
  const auto add = [&](unsigned byte) { target += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<XmlElement> Run() {
    if (text_.size() > limits::kXmlSizeMax) return Refuse("is over the limit of 8 MiB");
    Take("\xef\xbb\xbf");
    if (text_.substr(at_).starts_with("<?xml")) SEGUE_RETURN_IF_ERROR(SkipDeclaration());
    SkipSpace();
    SEGUE_RETURN_IF_ERROR(Open());
    while (!stack_.empty()) SEGUE_RETURN_IF_ERROR(Step());
    SkipSpace();
    if (at_ != text_.size()) return Refuse("goes on after its root");
    return std::move(root_);
  }

 private:
  Status Refuse(std::string_view why) const {
    return Corruption("the server's XML " + std::string(why) + ", at byte " + std::to_string(at_));
  }

  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  bool SkipSpace() {
    const std::size_t before = at_;
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    return at_ > before;
  }

  std::string_view TakeName() {
    const std::size_t before = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    return text_.substr(before, at_ - before);
  }

  Status SkipDeclaration() {
    const std::size_t end = text_.find("?>", at_);
    if (end == std::string_view::npos) return Refuse("has a declaration without an end");
    at_ = end + 2;
    return {};
  }

  // "<name a='b'>" or "<name/>".
  Status Open() {
    if (!Take("<")) return Refuse("has no element where one should begin");
    const std::string_view full = TakeName();
    if (full.empty()) return Refuse("has something other than elements and text");
    // A prefix is not empty, and what follows it is a name without one.
    const std::size_t colon = full.find(':');
    if (colon == 0 || (colon != std::string_view::npos &&
                       (colon + 1 == full.size() || full.rfind(':') != colon))) {
      return Refuse("has a name that is none");
    }
    if (stack_.size() == limits::kXmlDepthMax) return Refuse("is nested too deeply");
    if (++count_ > limits::kXmlElementCountMax) return Refuse("has too many elements");
    SEGUE_RETURN_IF_ERROR(SkipAttributes());
    XmlElement element;
    element.name = std::string(colon == std::string_view::npos ? full : full.substr(colon + 1));
    const bool empty = Take("/");
    if (!Take(">")) return Refuse("has a tag without an end");
    if (empty) return Close(std::move(element));
    stack_.push_back({std::move(element), full});
    return {};
  }

  Status SkipAttributes() {
    while (SkipSpace() && at_ < text_.size() && IsNameByte(text_[at_])) {
      TakeName();
      if (!Take("=")) return Refuse("has an attribute without a value");
      const char quote = at_ < text_.size() ? text_[at_] : '\0';
      if (quote != '"' && quote != '\'') return Refuse("has an attribute without quotes");
      const std::size_t end = text_.find(quote, at_ + 1);
      if (end == std::string_view::npos ||
          text_.substr(at_, end - at_).find('<') != std::string_view::npos) {
        return Refuse("has an attribute without an end");
      }
      at_ = end + 1;
    }
    return {};
  }

  Status Close(XmlElement element) {
    if (stack_.empty()) {
      root_ = std::move(element);
    } else {
      stack_.back().element.children.push_back(std::move(element));
    }
    return {};
  }

  // Text, a child's begin or the end of the innermost element.
  Status Step() {
    if (at_ == text_.size()) return Refuse("ends before its root does");
    if (text_[at_] != '<') return AddText();
    if (!Take("</")) return Open();
    if (!Take(stack_.back().full)) return Refuse("ends another element than began last");
    SkipSpace();
    if (!Take(">")) return Refuse("has a tag without an end");
    XmlElement element = std::move(stack_.back().element);
    stack_.pop_back();
    return Close(std::move(element));
  }

  Status AddText() {
    std::string& target = stack_.back().element.text;
    const std::size_t end = std::min(text_.find_first_of("<&", at_), text_.size());
    const std::string_view plain = text_.substr(at_, end - at_);
    if (plain.find('\0') != std::string_view::npos) return Refuse("holds a NUL");
    target += plain;
    at_ = end;
    return at_ < text_.size() && text_[at_] == '&' ? AddEntity(target) : Status();
  }

  Status AddEntity(std::string& target) {
    constexpr std::pair<std::string_view, char> entities[] = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (const auto& [name, value] : entities) {
      if (!Take(name)) continue;
      target += value;
      return {};
    }
    if (!Take("&#")) return Refuse("has an entity that is not known");
    const int base = Take("x") ? 16 : 10;
    unsigned code = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), code, base);
    at_ += static_cast<std::size_t>(end - begin);
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (error != std::errc() || code == 0 || code > 0x10ffff || surrogate || !Take(";")) {
      return Refuse("has a character's number that is none");
    }
    AppendUtf8(target, code);
    return {};
  }

  struct OpenElement {
    XmlElement element;
    std::string_view full;  // Its name as written.
  };

  const std::string_view text_;
  std::size_t at_ = 0;
  unsigned count_ = 0;
  std::vector<OpenElement> stack_;
  XmlElement root_;
};

}  // namespace

const XmlElement* XmlElement::Child(std::string_view child) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const XmlElement& element) { return element.name == child; });
  return found == children.end() ? nullptr : &*found;
}

std::string_view XmlElement::ChildText(std::string_view child) const {
  const XmlElement* const element = Child(child);
  return element == nullptr ? std::string_view() : element->text;
}

Result<XmlElement> ParseXml(ByteSpan text) { return Parser(AsText(text)).Run(); }

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

}  // namespace segue
