// SPDX-License-Identifier: Apache-2.0
//
// Names of lineages and of the objects of a store: docs/format.md, section 8. Numbers are padded so
// that names sort as the numbers do; nothing here touches a store.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/bytes.h"
#include "base/limits.h"
#include "checkpoint/tensor.h"
#include "delta/manifest.h"

namespace segue {
namespace {

constexpr std::size_t kVersionDigits = 10;
constexpr std::size_t kOwnerDigits = 5;
constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kVersionSuffix = ".json";
constexpr std::string_view kGoneSuffix = ".gone";
constexpr std::string_view kRoundSuffix = ".round";
constexpr std::size_t kRoundDigits = 16;
constexpr std::string_view kNameBytes =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Padded(std::uint64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

std::string OwnerOfCount(std::uint32_t owner, std::uint32_t owner_count) {
  return Padded(owner, kOwnerDigits) + "-of-" + Padded(owner_count, kOwnerDigits);
}

std::string Join(std::string_view folder, std::string_view name) {
  return std::string(folder).append("/").append(name);
}

}  // namespace

Status CheckLineageName(std::string_view name) {
  const auto refuse = [name](const std::string& found) {
    return InvalidArgument("lineage name " + Quoted(name) + ": expected 1 to " +
                           std::to_string(limits::kLineageNameSizeMax) +
                           " of [A-Za-z0-9._-], not beginning with '.', found " + found);
  };
  if (name.empty()) return refuse("none");
  if (name.size() > limits::kLineageNameSizeMax) return refuse(std::to_string(name.size()));
  if (name.front() == '.') return refuse("'.' in front");
  const std::size_t other = name.find_first_not_of(kNameBytes);
  if (other == std::string_view::npos) return {};
  return refuse(Quoted(name.substr(other, 1)) + " at byte " + std::to_string(other));
}

namespace object_name {

std::string Lineage(std::string_view lineage) { return Join(lineage, "lineage.json"); }

std::string Plan(std::string_view lineage, const Sha256& digest) {
  return Join(lineage, "plans/" + digest.ToHex());
}

std::string Layout(std::string_view lineage, const Sha256& digest) {
  return Join(lineage, "layouts/" + digest.ToHex());
}

std::string VersionFolder(std::string_view lineage) { return Join(lineage, "versions"); }

std::string Version(std::string_view lineage, std::uint64_t version) {
  return Join(VersionFolder(lineage), Padded(version, kVersionDigits).append(kVersionSuffix));
}

std::string Gone(std::string_view lineage, std::uint64_t version) {
  return Join(VersionFolder(lineage), Padded(version, kVersionDigits).append(kGoneSuffix));
}

std::string PayloadFolders(std::string_view lineage) { return Join(lineage, "payloads"); }

std::string OwnerFolders(std::string_view lineage) { return Join(lineage, "owners"); }

std::string PayloadFolder(std::string_view lineage, std::uint64_t version) {
  return Join(PayloadFolders(lineage), Padded(version, kVersionDigits));
}

std::string Payload(std::string_view lineage, std::uint64_t version, std::uint32_t owner,
                    std::uint32_t owner_count, const Sha256& sha256) {
  return Join(PayloadFolder(lineage, version),
              OwnerOfCount(owner, owner_count) + "-" + sha256.ToHex().substr(0, kHashDigits));
}

std::string OwnerFolder(std::string_view lineage, std::uint64_t version, std::string_view session) {
  return Join(Join(OwnerFolders(lineage), Padded(version, kVersionDigits)), session);
}

std::string Owner(std::string_view lineage, std::uint64_t version, std::string_view session,
                  std::uint32_t owner, std::uint32_t owner_count, std::string_view round) {
  std::string name = OwnerOfCount(owner, owner_count);
  if (!round.empty()) name.append("-").append(round);
  return Join(OwnerFolder(lineage, version, session), name + ".json");
}

std::string Round(std::string_view lineage, std::uint64_t version, std::string_view session,
                  std::string_view round) {
  return Join(OwnerFolder(lineage, version, session), std::string(round).append(kRoundSuffix));
}

std::string RoundName(std::uint64_t number) {
  std::array<std::byte, sizeof(number)> bytes{};
  StoreLittle(bytes.data(), number);
  return ToHex(bytes);
}

std::optional<std::string> ParseRound(std::string_view name) {
  if (!name.ends_with(kRoundSuffix)) return std::nullopt;
  name.remove_suffix(kRoundSuffix.size());
  const bool is_hex = name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (name.size() != kRoundDigits || !is_hex) return std::nullopt;
  return std::string(name);
}

std::string AnchorFolders(std::string_view lineage) { return Join(lineage, "anchors"); }

std::string AnchorFolder(std::string_view lineage, std::string_view anchor) {
  return Join(AnchorFolders(lineage), anchor);
}

std::string AnchorPayloadFolder(std::string_view lineage, std::string_view anchor,
                                std::uint64_t base, std::uint64_t target) {
  return Join(AnchorFolder(lineage, anchor),
              Padded(base, kVersionDigits) + "-" + Padded(target, kVersionDigits));
}

std::string Anchor(std::string_view lineage, std::string_view anchor, std::uint64_t base,
                   std::uint64_t target) {
  return AnchorPayloadFolder(lineage, anchor, base, target).append(kVersionSuffix);
}

std::string AnchorPayload(std::string_view lineage, std::string_view anchor, std::uint64_t base,
                          std::uint64_t target, const Sha256& sha256) {
  return Join(AnchorPayloadFolder(lineage, anchor, base, target),
              OwnerOfCount(0, 1) + "-" + sha256.ToHex().substr(0, kHashDigits));
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> ParseAnchor(std::string_view name) {
  if (name.size() <= kVersionDigits || name[kVersionDigits] != '-') return std::nullopt;
  const auto base = ParseVersionFolder(name.substr(0, kVersionDigits));
  const auto target = ParseVersion(name.substr(kVersionDigits + 1));
  if (!base || !target) return std::nullopt;
  return std::pair(*base, *target);
}

std::optional<std::uint64_t> ParseVersion(std::string_view name) {
  if (!name.ends_with(kVersionSuffix)) return std::nullopt;
  return ParseVersionFolder(name.substr(0, name.size() - kVersionSuffix.size()));
}

std::optional<std::uint64_t> ParseGone(std::string_view name) {
  if (!name.ends_with(kGoneSuffix)) return std::nullopt;
  return ParseVersionFolder(name.substr(0, name.size() - kGoneSuffix.size()));
}

std::optional<std::uint64_t> ParseVersionFolder(std::string_view name) {
  if (name.size() != kVersionDigits || !std::all_of(name.begin(), name.end(), IsDigit)) {
    return std::nullopt;
  }
  std::uint64_t version = 0;
  std::from_chars(name.data(), name.data() + name.size(), version);
  return version;
}

}  // namespace object_name
}  // namespace segue
