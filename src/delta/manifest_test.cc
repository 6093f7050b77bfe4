// SPDX-License-Identifier: Apache-2.0
//
// Goal: the three small JSON objects survive a round trip, and whatever lies in them is refused
// with the key, what was expected and what was found. Method: a valid text, one edit, one refusal;
// and the golden manifests, which another program wrote.
#include "delta/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/limits.h"

namespace segue {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kName[] = "run/versions/0000000012.json";

Sha256 FilledHash(unsigned char byte) {
  Sha256 hash;
  hash.bytes.fill(std::byte{byte});
  return hash;
}

PayloadEntry MakeEntry(std::uint32_t owner, std::uint32_t owner_count) {
  const Sha256 hash = FilledHash(static_cast<unsigned char>(owner + 1));
  return {.owner = owner,
          .object = object_name::Payload("run-1", 12, owner, owner_count, hash),
          .size = 1000 + owner,
          .sha256 = hash,
          .rows = 3};
}

DeltaIdentity MakeIdentity() {
  return {.lineage = "run-1",
          .base_version = 11,
          .target_version = 12,
          .plan = FilledHash(0xaa),
          .base_layout = FilledHash(0xbb),
          .target_layout = FilledHash(0xcc),
          .base_digest = {{1, 2}},
          .target_digest = {{0xfedcba9876543210, 4}},
          .profile = "sparse-zstd",
          .changed_chunks = 6,
          .changed_elements = 77};
}

Manifest MakeManifest() {
  return {.identity = MakeIdentity(),
          .model_bytes = 4096,
          .payloads = {MakeEntry(0, 2), MakeEntry(1, 2)}};
}

AnchorRecord MakeAnchor() { return {"eval", MakeManifest()}; }

// An anchor at its target itself.
AnchorRecord MakeAnchorAtTarget() {
  AnchorRecord record = MakeAnchor();
  DeltaIdentity& identity = record.manifest.identity;
  identity.base_version = identity.target_version;
  identity.base_digest = identity.target_digest;
  identity.base_layout = identity.target_layout;
  identity.changed_chunks = identity.changed_elements = 0;
  record.manifest.payloads.clear();
  return record;
}

LineageRecord MakeLineage() { return {"run-1", 7, {{5, 6}}, FilledHash(0xaa), FilledHash(0xbb)}; }

OwnerRecord MakeOwner() {
  return {.identity = MakeIdentity(),
          .owner_count = 2,
          .payload = MakeEntry(1, 2),
          .tensors = "",
          .round = ""};
}

template <typename T>
Result<T> Parse(std::string_view json) {
  const ByteVector exact(AsBytes(json).begin(), AsBytes(json).end());
  return T::Parse(exact, kName);
}

// The first `from` of `text` becomes `to`.
std::string Edit(std::string text, std::string_view from, std::string_view to) {
  const std::size_t place = text.find(from);
  SEGUE_CHECK(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

template <typename T = Manifest>
std::string Refusal(std::string_view json, StatusCode code = StatusCode::kCorruption) {
  const Status status = Parse<T>(json).status();
  EXPECT_EQ(status.code(), code) << status.ToString() << "\n" << json.substr(0, 2000);
  if (status.ok()) return {};
  EXPECT_THAT(status.message(), HasSubstr(kName));
  return status.message();
}

std::string ManifestRefusal(std::string_view from, std::string_view to,
                            StatusCode code = StatusCode::kCorruption) {
  return Refusal(Edit(MakeManifest().ToJson(), from, to), code);
}

std::string OwnerRefusal(std::string_view from, std::string_view to,
                         StatusCode code = StatusCode::kCorruption) {
  return Refusal<OwnerRecord>(Edit(MakeOwner().ToJson(), from, to), code);
}

testing::Matcher<std::string> Says(const std::string& key, const std::string& expected,
                                   const std::string& found) {
  return HasSubstr("key '" + key + "': expected " + expected + ", found " + found);
}

TEST(ManifestTest, RoundTrips) {
  EXPECT_EQ(Parse<Manifest>(MakeManifest().ToJson()).value(), MakeManifest());
  EXPECT_EQ(Parse<LineageRecord>(MakeLineage().ToJson()).value(), MakeLineage());
  EXPECT_EQ(Parse<OwnerRecord>(MakeOwner().ToJson()).value(), MakeOwner());
  OwnerRecord with_tensors = MakeOwner();
  with_tensors.tensors = "0f3";
  EXPECT_EQ(Parse<OwnerRecord>(with_tensors.ToJson()).value(), with_tensors);
  with_tensors.round = "0123456789abcdef";
  EXPECT_EQ(Parse<OwnerRecord>(with_tensors.ToJson()).value(), with_tensors);
}

// One bit of an owner record, flipped on its way: owner 0 would have published a version that
// nobody can reach (found by the simulator).
TEST(ManifestTest, OwnerRecordsAreCheckedAsAWhole) {
  const std::string text = MakeOwner().ToJson();
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    const auto parsed = OwnerRecord::Parse(AsBytes(flipped), "owner");
    // Between two members a space may become another: the record is the same.
    EXPECT_TRUE(!parsed.ok() || parsed.value() == MakeOwner()) << bit;
  }
}

TEST(ManifestTest, RoundTripsExtremes) {
  Manifest manifest = MakeManifest();
  manifest.identity.base_version = limits::kVersionMax - 1;
  manifest.identity.target_version = limits::kVersionMax;
  manifest.identity.profile = std::string("\"\\/\b\x7f\xc3\xa9\xf0\x9f\x98\x80\0", 12);
  manifest.identity.changed_elements = (1ull << 63) - 1;
  manifest.model_bytes = 1ull << 60;
  manifest.payloads[0].size = (1ull << 63) - 1;
  manifest.payloads[0].object = "run-1/a";
  EXPECT_EQ(Parse<Manifest>(manifest.ToJson()).value(), manifest);
}

TEST(ManifestTest, TextIsExact) {
  EXPECT_EQ(MakeLineage().ToJson(),
            "{\n  \"format\": \"segue-lineage\",\n  \"format_version\": 1,\n"
            "  \"lineage\": \"run-1\",\n  \"origin_version\": 7,\n"
            "  \"origin_digest\": \"00000000000000050000000000000006\",\n  \"plan\": \"" +
                FilledHash(0xaa).ToHex() + "\",\n  \"layout\": \"" + FilledHash(0xbb).ToHex() +
                "\"\n}\n");
}

// The keys of the outermost object, in their order.
std::vector<std::string> Keys(const std::string& json) {
  std::vector<std::string> keys;
  std::size_t at = 0;
  while ((at = json.find("\n  \"", at)) != std::string::npos) {
    at += 4;
    keys.push_back(json.substr(at, json.find('"', at) - at));
  }
  return keys;
}

TEST(ManifestTest, KeysStandAsInTheDocument) {
  const auto joined = [](const std::string& json) {
    std::string text;
    for (const std::string& key : Keys(json)) text += key + " ";
    return text;
  };
  const std::string first =
      "format format_version lineage base_version target_version plan base_layout target_layout ";
  const std::string changed = "changed_chunks changed_elements ";
  EXPECT_EQ(joined(MakeManifest().ToJson()),
            first + "base_digest target_digest profile model_bytes " + changed + "payloads ");
  EXPECT_EQ(
      joined(MakeOwner().ToJson()),
      first + "owner owner_count profile base_digest target_digest " + changed + "payload check ");
}

TEST(ManifestTest, Anchors) {
  for (const AnchorRecord& record : {MakeAnchor(), MakeAnchorAtTarget()}) {
    EXPECT_EQ(Parse<AnchorRecord>(record.ToJson()).value(), record);
  }
  EXPECT_TRUE(MakeAnchor().leads_on());
  EXPECT_FALSE(MakeAnchorAtTarget().leads_on());
  const std::string text = MakeAnchor().ToJson();
  const std::string at_target = MakeAnchorAtTarget().ToJson();
  EXPECT_THAT(Refusal<AnchorRecord>(MakeManifest().ToJson()),
              Says("format", "'segue-anchor'", "'segue-manifest'"));
  EXPECT_THAT(Refusal(text), Says("format", "'segue-manifest'", "'segue-anchor'"));
  EXPECT_THAT(Refusal<AnchorRecord>(Edit(text, "\"anchor\": \"eval\"", "\"anchor\": \"../x\"")),
              HasSubstr("the name of an anchor"));
  EXPECT_THAT(Refusal<AnchorRecord>(Edit(text, "\"anchor\":", "\"anchor_\":")),
              HasSubstr("key 'anchor': expected a string, found no such key"));
  EXPECT_THAT(Refusal<AnchorRecord>(Edit(text, "\"base_version\": 11", "\"base_version\": 12")),
              HasSubstr("expected none, as base and target are one version"));
  EXPECT_THAT(Refusal<AnchorRecord>(Edit(text, "\"base_version\": 11", "\"base_version\": 13")),
              Says("base_version", "at most target_version 12", "13"));
  EXPECT_THAT(
      Refusal<AnchorRecord>(Edit(at_target, "\"base_version\": 12", "\"base_version\": 11")),
      Says("payloads", "an array of 1 to 65536 entries", "none"));
  EXPECT_THAT(
      Refusal<AnchorRecord>(Edit(at_target, "\"changed_chunks\": 0", "\"changed_chunks\": 1")),
      HasSubstr("and yet they differ"));
}

TEST(ManifestTest, IgnoresUnknownKeysAndOrder) {
  const std::string text = MakeManifest().ToJson();
  const std::string more = R"({"new":{"a":[1.5,null,true,-1]},"":"",)";
  EXPECT_EQ(Parse<Manifest>(" \n" + Edit(text, "{", more) + "\t\r\n").value(), MakeManifest());
  EXPECT_EQ(Parse<Manifest>(Edit(text, "\"owner\": 0", "\"x\":[],\"owner\": 0")).value(),
            MakeManifest());
  std::string moved = Edit(text, "  \"format\": \"segue-manifest\",\n", "");
  moved = Edit(moved, "\n}\n", ",\"format\":\"segue-m\\u0061nifest\"}");
  EXPECT_EQ(Parse<Manifest>(moved).value(), MakeManifest());
}

TEST(ManifestTest, FormatComesFirst) {
  EXPECT_THAT(ManifestRefusal("segue-manifest", "segue-owner"),
              Says("format", "'segue-manifest'", "'segue-owner'"));
  EXPECT_THAT(Refusal(MakeOwner().ToJson()), Says("format", "'segue-manifest'", "'segue-owner'"));
  EXPECT_THAT(Refusal<LineageRecord>(MakeManifest().ToJson()),
              Says("format", "'segue-lineage'", "'segue-manifest'"));
  EXPECT_THAT(Refusal<OwnerRecord>(MakeLineage().ToJson()),
              Says("format", "'segue-owner'", "'segue-lineage'"));
  EXPECT_THAT(Refusal("{}"), Says("format", "'segue-manifest'", "no such key"));
  for (const char* version : {"0", "2", "9223372036854775808"}) {
    EXPECT_THAT(
        ManifestRefusal("\"format_version\": 1", "\"format_version\": " + std::string(version),
                        StatusCode::kUnsupported),
        Says("format_version", "1 (the one known here)", version));
  }
  // A later version may give every other key another type.
  EXPECT_THAT(Refusal(R"({"lineage":[],"format_version":2,"format":"segue-manifest"})",
                      StatusCode::kUnsupported),
              HasSubstr("found 2"));
  for (const char* version : {"-1", "1.0", "\"1\"", "null"}) {
    ManifestRefusal("\"format_version\": 1", "\"format_version\": " + std::string(version));
  }
}

TEST(ManifestTest, EveryKeyIsNeeded) {
  const auto without = [](const std::string& text, const std::string& key) {
    return Edit(text, "\"" + key + "\":", "\"" + key + "_\":");
  };
  const auto says = [](const std::string& key) {
    return AllOf(HasSubstr("key '" + key + "': expected "), HasSubstr("found no such key"));
  };
  const std::string manifest = MakeManifest().ToJson();
  const std::string lineage = MakeLineage().ToJson();
  const std::string owner = MakeOwner().ToJson();
  for (const std::string& key : Keys(manifest)) {
    EXPECT_THAT(Refusal(without(manifest, key)), says(key));
  }
  for (const std::string& key : Keys(lineage)) {
    EXPECT_THAT(Refusal<LineageRecord>(without(lineage, key)), says(key));
  }
  for (const std::string& key : Keys(owner)) {
    EXPECT_THAT(Refusal<OwnerRecord>(without(owner, key)), says(key));
  }
  for (const char* key : {"owner", "object", "size", "sha256", "rows"}) {
    EXPECT_THAT(Refusal(without(manifest, key)), AllOf(HasSubstr("payload 0: "), says(key)));
  }
}

TEST(ManifestTest, TypesAreExact) {
  const std::string version = "\"base_version\": 11";
  const std::string integer = "an integer from 0 to 9999999999";
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  Pairs pairs = {{"\"11\"", "the string '11'"}, {"1.1e1", "11"}, {"[11]", "an array"}};
  for (const char* same : {"-1", "1.5", "true", "null", "10000000000"}) {
    pairs.emplace_back(same, same);
  }
  for (const auto& [text, found] : pairs) {
    EXPECT_THAT(ManifestRefusal(version, "\"base_version\": " + text),
                Says("base_version", integer, found));
  }
  EXPECT_THAT(ManifestRefusal("\"profile\": \"sparse-zstd\"", "\"profile\": 7"),
              Says("profile", "a string", "7"));
  EXPECT_THAT(Refusal(Edit(MakeManifest().ToJson(), "\"payloads\": [", "\"payloads\": [5,")),
              HasSubstr("payload 0: expected an object, found 5"));
  EXPECT_THAT(ManifestRefusal("\"payloads\":", "\"payloads\": {}, \"x\":"),
              HasSubstr("entries, found an object"));
  EXPECT_THAT(OwnerRefusal("\"payload\":", "\"payload\": [], \"x\":"),
              Says("payload", "an object", "an array"));
  EXPECT_THAT(OwnerRefusal("\"payload\":", "\"tensors\": 7, \"payload\":"),
              Says("tensors", "a string", "7"));
}

TEST(ManifestTest, Versions) {  // case B5
  EXPECT_THAT(ManifestRefusal("\"base_version\": 11", "\"base_version\": 12"),
              Says("base_version", "less than target_version 12", "12"));
  EXPECT_THAT(ManifestRefusal("\"target_version\": 12", "\"target_version\": 10000000000"),
              Says("target_version", "an integer from 0 to 9999999999", "10000000000"));
  for (const std::string version : {".", "..", "a/b"}) {
    EXPECT_THAT(
        ManifestRefusal("\"target_version\": 12", "\"target_version\": \"" + version + "\""),
        HasSubstr("found the string '" + version + "'"));
  }
  EXPECT_THAT(Refusal<LineageRecord>(Edit(MakeLineage().ToJson(), "\"origin_version\": 7",
                                          "\"origin_version\": 10000000000")),
              HasSubstr("key 'origin_version'"));
}

TEST(ManifestTest, Digests) {
  const std::string plan = FilledHash(0xaa).ToHex();
  for (const std::string& text :
       {std::string(), plan.substr(1), plan + "a", "0x" + plan.substr(2), "A" + plan.substr(1),
        " " + plan.substr(1), std::string("g") + plan.substr(1)}) {
    EXPECT_THAT(ManifestRefusal(plan, text),
                Says("plan", "64 lower-case hexadecimal digits", "'" + text + "' of "));
  }
  const std::string digest = Digest{{1, 2}}.ToHex();
  EXPECT_THAT(
      ManifestRefusal(digest, digest.substr(1)),
      AllOf(Says("base_digest", "32 lower-case hexadecimal digits", "'"), HasSubstr("' of 31")));
}

TEST(ManifestTest, HugeClaims) {  // case F5
  // A number as such; whether there is such an object shows when it is fetched.
  const std::string text = Edit(MakeManifest().ToJson(), " 1000,", " 1152921504606846976,");
  EXPECT_EQ(Parse<Manifest>(text).value().payloads[0].size, 1ull << 60);
  for (const char* key : {"size", "rows", "model_bytes", "changed_chunks", "changed_elements"}) {
    const std::string quoted = "\"" + std::string(key) + "\":";
    EXPECT_THAT(ManifestRefusal(quoted, quoted + " 9223372036854775808, \"x\":"),
                Says(key, "an integer from 0 to 9223372036854775807", "9223372036854775808"));
    EXPECT_THAT(ManifestRefusal(quoted, quoted + " 18446744073709551616, \"x\":"),
                HasSubstr("numbers of 64 bits"));
  }
}

TEST(ManifestTest, Owners) {
  EXPECT_THAT(ManifestRefusal("\"owner\": 1", "\"owner\": 0"),
              AllOf(HasSubstr("payload 1"), Says("owner", "1", "0")));
  EXPECT_THAT(ManifestRefusal("\"owner\": 0", "\"owner\": 4294967296"),
              Says("owner", "0", "4294967296"));
  EXPECT_THAT(ManifestRefusal("\"payloads\":", "\"payloads\": [], \"x\":"),
              Says("payloads", "an array of 1 to 65536 entries", "none"));
  std::string many = "\"payloads\": [0";
  for (std::uint64_t i = 0; i < limits::kOwnerCountMax; ++i) many += ",0";
  EXPECT_THAT(ManifestRefusal("\"payloads\":", many + "], \"x\":", StatusCode::kResourceExhausted),
              HasSubstr("found 65537"));
  EXPECT_THAT(OwnerRefusal("\"owner\": 1", "\"owner\": 2"),
              Says("owner", "less than owner_count 2", "2"));
  EXPECT_THAT(OwnerRefusal("\"owner\": 1", "\"owner\": 0"),
              AllOf(HasSubstr("payload: "), Says("owner", "0", "1")));
  EXPECT_THAT(OwnerRefusal("\"owner_count\": 2", "\"owner_count\": 0"), HasSubstr("owner_count 0"));
  EXPECT_THAT(OwnerRefusal("\"owner_count\": 2", "\"owner_count\": 65537"),
              Says("owner_count", "an integer from 0 to 65536", "65537"));
}

TEST(ManifestTest, ObjectNamesStayBelowTheLineage) {  // case B5
  const std::string object = MakeEntry(1, 2).object;
  const auto refused = [&object](const std::string& name) {
    SCOPED_TRACE(name);
    const auto refusal = Says("object", "parts of [A-Za-z0-9._-] below 'run-1/'", "'");
    EXPECT_THAT(ManifestRefusal(object, name), refusal);
    EXPECT_THAT(OwnerRefusal(object, name), refusal);
  };
  for (const char* name : {"", ".", "..", "/", "/etc/x", "../x.safetensors", "a/../../x", "C:\\\\x",
                           "x\\u0000y", "run-1", "/run-1/x", "run-10/x", "Run-1/x"}) {
    refused(name);
  }
  for (const char* rest : {"", "/x", ".x", "..", "../x", "a/./x", "a/../x", "a/", "a//b", "x y",
                           "x\\u0000", "x\\\\y", "x\\ny", "x:y", "x\\u00e9"}) {
    refused("run-1/" + std::string(rest));
  }
  for (const char* name : {"run-1/x", "run-1/a/b/c", "run-1/a.b_c-D9", "run-1/a..b"}) {
    EXPECT_TRUE(Parse<Manifest>(Edit(MakeManifest().ToJson(), object, name)).ok()) << name;
  }
}

TEST(ManifestTest, LineageNames) {  // case B5
  for (const char* name : {"", ".", "..", "a/b", "../x", "x\\u0000y"}) {
    EXPECT_THAT(ManifestRefusal("\"run-1\"", "\"" + std::string(name) + "\""),
                HasSubstr("key 'lineage': expected the name of a lineage, found"));
  }
}

TEST(ManifestTest, DuplicateKeysAreRefused) {
  const auto twice = [](const std::string& key) {
    return HasSubstr("key '" + key + "': expected once in an object, found twice");
  };
  EXPECT_THAT(ManifestRefusal("{", R"({"base_version": 11,)"), twice("base_version"));
  EXPECT_THAT(ManifestRefusal("{", R"({"base\u005fversion": 11,)"), twice("base_version"));
  EXPECT_THAT(ManifestRefusal("\"owner\": 0", "\"rows\": 3, \"owner\": 0"), twice("rows"));
  EXPECT_THAT(ManifestRefusal("{", R"({"x":1,"x":2,)"), twice("x"));
  EXPECT_THAT(ManifestRefusal("{", R"({"x":[0,{"y":{"z":1,"\u007a":2}}],)"), twice("z"));
  EXPECT_TRUE(Parse<Manifest>(Edit(MakeManifest().ToJson(), "{", R"({"x":{"x":{"x":0}},)")).ok());
}

TEST(ManifestTest, MustBeOneJsonObject) {
  const std::string text = MakeManifest().ToJson();
  const auto refused = [](const std::string& other) {
    SCOPED_TRACE(other.substr(0, 200));
    EXPECT_THAT(Refusal(other), AllOf(HasSubstr("expected"), HasSubstr("found")));
  };
  for (const char* whole : {"", " \n", "x", "{", "null", "\"\""}) refused(whole);
  for (const char* before : {"[", "x", "{", "\xef\xbb\xbf", "\xff"}) refused(before + text);
  for (const char* after : {"{}", "x", "}", ",", "1", "\xff", "\v"}) refused(text + after);
  refused(text + std::string(1, '\0'));
  for (const std::size_t size : {text.size() / 2, text.size() - 3}) refused(text.substr(0, size));
  for (const char* profile :
       {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\\ud800", "\\x", "\n", "\t"}) {
    refused(Edit(text, "sparse", profile));
  }
  for (const char* key : {"\"x\":01", "\"x\":tru", "\"x\":NaN", "\"x\":", "\"x\"", "\"\xff\":0",
                          "0:0", "", "\"x\":[}", "\"x\":{]", "\"x\":[1,]", "\"x\":+1"}) {
    refused(Edit(text, "{", "{" + std::string(key) + ","));
  }
  refused(Edit(text, "{", "{\"x\":" + std::string(100'000, '[') + ","));
  refused(Edit(text, "{", "{\"x\":" + std::string(5'000, '[') + std::string(5'000, ']') + ","));
  refused(Edit(text, "\n}", ",\n}"));
}

TEST(ManifestTest, SizeIsLimited) {
  std::string text = MakeManifest().ToJson();
  text.resize(limits::kManifestSizeMax, ' ');
  EXPECT_TRUE(Parse<Manifest>(text).ok());
  EXPECT_THAT(Refusal(text + " ", StatusCode::kResourceExhausted),
              HasSubstr("expected at most 33554432 bytes, found 33554433"));
}

TEST(ManifestTest, GoldenManifests) {
  const std::string folder = std::string(SEGUE_SOURCE_DIR) + "/tests/golden/";
  const auto read = [&folder](const std::string& name) {
    const ByteVector bytes =
        ReadFile(folder + name + "/manifest.json", limits::kManifestSizeMax).value();
    return Manifest::Parse(bytes, kName);
  };
  const std::vector<std::string> names = ListDirectory(folder + "valid").value();
  for (const std::string& name : names) {
    if (name.starts_with("anchor-")) continue;
    const Result<Manifest> manifest = read("valid/" + name);
    ASSERT_TRUE(manifest.ok()) << name << ": " << manifest.status().ToString();
    EXPECT_EQ(Parse<Manifest>(manifest->ToJson()).value(), manifest.value()) << name;
  }
  EXPECT_EQ(read("invalid/manifest-version").status().code(), StatusCode::kUnsupported);
  for (const char* name :
       {"array", "digest-short", "digest-upper-case", "duplicate-key", "duplicate-key-inside",
        "format", "key-missing", "lineage", "no-payloads", "not-utf8", "object-escapes",
        "owner-order", "trailing-text", "truncated", "version-fraction", "version-negative",
        "version-over", "version-string", "versions-equal"}) {
    EXPECT_EQ(read("invalid/manifest-" + std::string(name)).status().code(),
              StatusCode::kCorruption)
        << name;
  }
}

TEST(ManifestTest, GoldenAnchors) {
  const std::string folder = std::string(SEGUE_SOURCE_DIR) + "/tests/golden/";
  for (const char* kind : {"valid", "invalid"}) {
    std::size_t count = 0;
    const std::vector<std::string> names = ListDirectory(folder + kind).value();
    for (const std::string& name : names) {
      if (!name.starts_with("anchor-")) continue;
      ++count;
      const ByteVector bytes =
          ReadFile(folder + kind + "/" + name + "/anchor.json", limits::kManifestSizeMax).value();
      const Result<AnchorRecord> record = AnchorRecord::Parse(bytes, kName);
      if (std::string_view(kind) == "valid") {
        ASSERT_TRUE(record.ok()) << name << ": " << record.status().ToString();
        EXPECT_EQ(Parse<AnchorRecord>(record->ToJson()).value(), record.value()) << name;
      } else {
        EXPECT_EQ(record.status().code(), StatusCode::kCorruption) << name;
      }
    }
    EXPECT_GE(count, 2u) << kind;
  }
}

}  // namespace
}  // namespace segue
