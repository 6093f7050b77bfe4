// SPDX-License-Identifier: Apache-2.0
//
// Goal: headers that the reference reader takes are taken, all others are refused with the file,
// the tensor and the reason. Method: header texts by hand, one fault each.
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "base/limits.h"
#include "checkpoint/testing.h"

namespace segue {
namespace {

using test::MakeSafetensorsFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr char kPath[] = "dir/model.safetensors";

Result<SafetensorsHeader> Parse(std::string_view json) {
  // A heap copy of the exact size, so that AddressSanitizer sees reads past the end.
  const ByteVector exact(AsBytes(json).begin(), AsBytes(json).end());
  return ParseSafetensorsHeader(exact, kPath);
}

// The header {"w":<tensor>}.
Result<SafetensorsHeader> ParseTensor(const std::string& tensor) {
  return Parse("{\"w\":" + tensor + "}");
}

std::string Refusal(const Result<SafetensorsHeader>& result) {
  EXPECT_FALSE(result.ok());
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), StatusCode::kCorruption) << result.status().message();
  EXPECT_THAT(result.status().message(), HasSubstr(kPath));
  return result.status().message();
}

std::string TensorRefusal(const std::string& tensor) {
  std::string message = Refusal(ParseTensor(tensor));
  EXPECT_THAT(message, HasSubstr("tensor 'w': "));
  return message;
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const SafetensorsHeader header =
      Parse(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],)"
            R"("data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}   )")
          .value();
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].spec, (TensorSpec{"a", Dtype::kBF16, {1, 2}}));
  EXPECT_EQ(header.entries[0].offset, 0u);
  EXPECT_EQ(header.entries[0].size, 4u);
  EXPECT_EQ(header.entries[1].spec, (TensorSpec{"b", Dtype::kF32, {2}}));
  EXPECT_EQ(header.entries[1].offset, 4u);
  EXPECT_EQ(header.data_size, 12u);
  EXPECT_THAT(header.metadata, ElementsAre(Pair("format", "pt")));
}

TEST(SafetensorsTest, OddButValidHeaders) {  // case A1
  const SafetensorsHeader header =
      Parse(R"({"__metadata__":{},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"U8","shape":[3,0,2],"data_offsets":[4,4]},)"
            R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")
          .value();
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].spec.name, "a");
  EXPECT_EQ(header.entries[1].spec.name, "s");
  EXPECT_EQ(header.entries[2].spec.name, "b");
  EXPECT_EQ(header.data_size, 4u);
  EXPECT_TRUE(Parse("{}").value().entries.empty());
  EXPECT_TRUE(Parse(R"({"__metadata__":{}})").value().entries.empty());
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F32","shape":[1],"data_offsets":[0,0]})"),
              HasSubstr("F32 [1] is 4 bytes, data_offsets [0, 0] span 0"));
}

TEST(SafetensorsTest, ZeroByteTensorInsideAnotherIsRefused) {  // case A4
  EXPECT_THAT(Refusal(Parse(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})")),
              HasSubstr("tensor 'z': overlaps: data_offsets begin at 2, expected 4"));
}

TEST(SafetensorsTest, ShapesAndOffsetsThatLie) {  // case A4
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[4294967296,4294967296],)"
                            R"("data_offsets":[0,0]})"),
              HasSubstr("more than 2^64 elements"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
              HasSubstr("shape holds something other than an integer"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"),
              HasSubstr("shape holds something other than an integer"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]})"),
              HasSubstr("F32 [1000, 1000] is 4000000 bytes, data_offsets [0, 4] span 4"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F32","shape":[1],"data_offsets":[8,4]})"),
              HasSubstr("data_offsets begin at 8, after their end at 4"));
  EXPECT_THAT(
      TensorRefusal(R"({"dtype":"F32","shape":[1],"data_offsets":[8,12]})"),
      HasSubstr("leaves a gap: data_offsets begin at 8, expected 0 where the data section"));
}

TEST(SafetensorsTest, GapsAndOverlaps) {  // case A4
  EXPECT_THAT(Refusal(Parse(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})")),
              HasSubstr("tensor 'b': leaves a gap: data_offsets begin at 8, expected 4 where "
                        "tensor 'a' ends"));
  EXPECT_THAT(Refusal(Parse(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})")),
              HasSubstr("tensor 'b': overlaps: data_offsets begin at 3, expected 4"));
  EXPECT_THAT(Refusal(Parse(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})")),
              HasSubstr("tensor 'b': overlaps"));
}

TEST(SafetensorsTest, NumbersThatAreNoOffsets) {  // case A4
  for (const char* number : {"-1", "-0", "0.0", "1e3", "18446744073709551616", "01", "+1", "\"0\"",
                             "null", "true", "[0]", "NaN"}) {
    SCOPED_TRACE(number);
    TensorRefusal(std::string(R"({"dtype":"U8","shape":[0],"data_offsets":[0,)") + number + "]}");
    TensorRefusal(std::string(R"({"dtype":"U8","data_offsets":[0,0],"shape":[0,)") + number + "]}");
  }
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[0],"data_offsets":[0]})"),
              HasSubstr("data_offsets has 1 numbers, expected 2"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0,0]})"),
              HasSubstr("data_offsets has 3 numbers, expected 2"));
  EXPECT_TRUE(
      ParseTensor(R"({"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]})").ok());
}

TEST(SafetensorsTest, FieldsMissingTwiceOrOfAnotherType) {  // case A4
  EXPECT_THAT(TensorRefusal(R"({"shape":[0],"data_offsets":[0,0]})"),
              HasSubstr("field 'dtype' is missing"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","data_offsets":[0,0]})"),
              HasSubstr("field 'shape' is missing"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[0]})"),
              HasSubstr("field 'data_offsets' is missing"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]})"),
              HasSubstr("field 'dtype' appears twice"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[0],"shap\u0065":[0],"data_offsets":[0,0]})"),
              HasSubstr("field 'shape' appears twice"));
  EXPECT_THAT(
      TensorRefusal(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"data_offsets":[0,0]})"),
      HasSubstr("field 'data_offsets' appears twice"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":5,"shape":[0],"data_offsets":[0,0]})"),
              HasSubstr("dtype is not a string"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":0,"data_offsets":[0,0]})"),
              HasSubstr("shape is not an array"));
  EXPECT_THAT(TensorRefusal(R"({"dtype":"U8","shape":[0],"data_offsets":"0,0"})"),
              HasSubstr("data_offsets is not an array"));
  for (const char* value : {"5", "[]", "null", "\"w\"", R"(["U8",[0],[0,0]])"}) {
    EXPECT_THAT(TensorRefusal(value), HasSubstr("is not an object"));
  }
}

TEST(SafetensorsTest, UnknownFieldsAreIgnoredButMustBeJson) {
  const auto parse_with = [](const std::string& extra) {
    std::string tensor = R"({"dtype":"U8","extra":)";
    return ParseTensor(tensor.append(extra).append(R"(,"shape":[0],"data_offsets":[0,0]})"));
  };
  for (const char* value :
       {"1", "-1.5e3", "null", "true", "\"x\"", "[]", "{}", R"({"a":[1,{"b":null}],"a":2})"}) {
    SCOPED_TRACE(value);
    EXPECT_TRUE(parse_with(value).ok());
  }
  for (const char* value :
       {"nul", "truee", "1.", "[1,]", "[1 2]", "{\"a\"}", "{\"a\":}", "{,}", "'x'", "\"\\x\"",
        "\"\\ud800\"", "[01]", "[tru]", "}", "", "[}", "{]"}) {
    SCOPED_TRACE(value);
    Refusal(parse_with(value));
  }
  EXPECT_TRUE(parse_with(std::string(100, '[') + std::string(100, ']')).ok());
  Refusal(parse_with(std::string(200, '[') + std::string(200, ']')));
  Refusal(parse_with(std::string(1'000'000, '[')));
}

TEST(SafetensorsTest, NamesTwice) {
  EXPECT_THAT(Refusal(Parse(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                            R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})")),
              HasSubstr("tensor 'w': appears twice in the header"));
  // Equal only after unescaping.
  EXPECT_THAT(Refusal(Parse(R"({"w/":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                            R"("\u0077\/":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})")),
              HasSubstr("tensor 'w/': appears twice in the header"));
  EXPECT_THAT(Refusal(Parse(R"({"__metadata__":{},"__metadata__":{}})")),
              HasSubstr("'__metadata__' appears twice"));
}

TEST(SafetensorsTest, Metadata) {
  EXPECT_THAT(Parse("{\"__metadata__\":{\"a\":\"1\",\"\":\"\",\"\\u00e9\":\"\\ud83d\\ude00\"}}")
                  .value()
                  .metadata,
              ElementsAre(Pair("", ""), Pair("a", "1"), Pair("é", "😀")));
  for (const char* value : {"null", "[]", "5", "\"x\"", R"({"a":1})", R"({"a":null})",
                            R"({"a":{}})", R"({"a":"1","a":"1"})"}) {
    SCOPED_TRACE(value);
    EXPECT_THAT(Refusal(Parse(std::string("{\"__metadata__\":") + value + "}")),
                HasSubstr("__metadata__"));
  }
}

TEST(SafetensorsTest, TextAroundTheObject) {
  EXPECT_TRUE(Parse("{}     ").ok());
  EXPECT_TRUE(Parse("{}\n").ok());
  for (const std::string& text :
       {std::string(""), std::string(" {}"), std::string("[]"), std::string("{"),
        std::string("{}}"), std::string("{}{}"), std::string("{} x"), std::string("{},"),
        std::string("{}\0", 3), std::string("\xef\xbb\xbf{}"), std::string("{}\xff"),
        std::string("{\"w\":"), std::string("{\"w\""), std::string("{,}"), std::string(8, '\0')}) {
    SCOPED_TRACE(text);
    Refusal(Parse(text));
  }
}

TEST(SafetensorsTest, NamesMustBeUtf8AndWithinLimits) {
  const std::string tail = R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  Refusal(Parse("{\"a\xff" + tail));
  Refusal(Parse("{\"\xc0\xaf" + tail));
  Refusal(Parse("{\"a\nb" + tail));
  Refusal(Parse("{\"\\ud800" + tail));
  EXPECT_THAT(Refusal(Parse("{\"" + tail)), HasSubstr("the name is empty"));
  EXPECT_TRUE(Parse("{\"" + std::string(limits::kTensorNameSizeMax, 'n') + tail).ok());
  const Status status =
      Parse("{\"" + std::string(limits::kTensorNameSizeMax + 1, 'n') + tail).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the name has 4097 bytes, the limit is 4096"));
  EXPECT_EQ(Parse(R"({"x\u0000y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})")
                .value()
                .entries[0]
                .spec.name,
            std::string("x\0y", 3));
}

TEST(SafetensorsTest, RankLimit) {
  std::string shape = "0";
  for (std::uint64_t i = 1; i < limits::kTensorRankMax; ++i) shape += ",1";
  EXPECT_TRUE(
      ParseTensor(R"({"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,0]})").ok());
  const Status status =
      ParseTensor(R"({"dtype":"U8","shape":[)" + shape + R"(,1],"data_offsets":[0,0]})").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'w': has more than 32 dimensions"));
}

TEST(SafetensorsTest, Dtypes) {  // case A7
  EXPECT_TRUE(Parse(R"({"a":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"F4","shape":[2,8],"data_offsets":[4,12]},)"
                    R"("c":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[12,15]},)"
                    R"("d":{"dtype":"U8","shape":[2,4],"data_offsets":[15,23]},)"
                    R"("e":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[23,24]},)"
                    R"("f":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[24,25]},)"
                    R"("g":{"dtype":"I64","shape":[2],"data_offsets":[25,41]},)"
                    R"("h":{"dtype":"BOOL","shape":[1],"data_offsets":[41,42]},)"
                    R"("i":{"dtype":"C64","shape":[1],"data_offsets":[42,50]}})")
                  .ok());
  EXPECT_THAT(TensorRefusal(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})"),
              HasSubstr("F4 [3] is 12 bits, not whole bytes"));
  const Status status = ParseTensor(R"({"dtype":"X9","shape":[1],"data_offsets":[0,1]})").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(), "'dir/model.safetensors': tensor 'w': unknown dtype 'X9'");
}

TEST(SafetensorsTest, UnalignedTensors) {  // case A6
  const std::string json = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                           R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[3,13]},)"
                           R"("c":{"dtype":"F32","shape":[7],"data_offsets":[13,41]},)"
                           R"("d":{"dtype":"F64","shape":[1],"data_offsets":[41,49]}} )";
  ASSERT_NE(json.size() % 8, 0u);
  const ByteVector file = MakeSafetensorsFile(json, test::RandomBytes(1, 49));
  const SafetensorsFile parsed = ParseSafetensorsFile(file, kPath).value();
  EXPECT_EQ(parsed.header.entries[3].offset, 41u);
  EXPECT_EQ(AsText(parsed.json), json);
  EXPECT_EQ(parsed.data.size(), 49u);
}

TEST(SafetensorsTest, BytesAfterTheLastTensor) {  // case A2
  const std::string json = R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  for (const std::byte extra : {std::byte{0}, std::byte{0xaa}}) {
    ByteVector file = MakeSafetensorsFile(json, test::RandomBytes(1, 4));
    ASSERT_TRUE(ParseSafetensorsFile(file, kPath).ok());
    file.resize(file.size() + 8, extra);
    const Status status = ParseSafetensorsFile(file, kPath).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(kPath), HasSubstr("has 12 bytes"), HasSubstr("need 4"),
                      HasSubstr("8 bytes lie past the last tensor")));
    const ByteSpan cut = ByteSpan(file).first(file.size() - 10);
    EXPECT_THAT(ParseSafetensorsFile(cut, kPath).status().message(),
                HasSubstr("has 2 bytes, the header's tensors need 4: 2 bytes are missing"));
  }
}

TEST(SafetensorsTest, HeaderLengthThatLies) {  // case A4
  ByteVector file = MakeSafetensorsFile("{}", {});
  const auto parse = [&file](std::uint64_t length) {
    StoreLittle(file.data(), length);
    return ParseSafetensorsFile(file, kPath).status();
  };
  EXPECT_TRUE(parse(2).ok());
  for (const std::uint64_t length : {~0ull, ~0ull - 7, 1ull << 63, 100'000'001ull}) {
    EXPECT_EQ(parse(length).code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(parse(length).message(),
                AllOf(HasSubstr(kPath), HasSubstr("header length is " + std::to_string(length)),
                      HasSubstr("the limit is 100000000")));
  }
  EXPECT_THAT(parse(10).message(), HasSubstr("header length is 10 bytes, but only 2 bytes follow"));
  EXPECT_THAT(parse(3).message(), HasSubstr("header length is 3 bytes, but only 2 bytes follow"));
  EXPECT_THAT(parse(0).message(), HasSubstr("is empty"));
  for (std::size_t size = 0; size < 8; ++size) {
    EXPECT_THAT(ParseSafetensorsFile(ByteSpan(file).first(size), kPath).status().message(),
                HasSubstr("has " + std::to_string(size) + " bytes"));
  }
}

TEST(SafetensorsTest, HeaderOverTheLimitThatIsThere) {  // case A4
  const test::TemporaryDirectory directory;
  const std::string path = directory.File("model.safetensors");
  ByteVector length;
  AppendLittle(length, std::uint64_t{100'000'001});
  test::WriteFile(path, length);
  ASSERT_EQ(::truncate(path.c_str(), 100'000'009 + 5), 0);
  const MappedFile file = MappedFile::Open(path).value();
  const Status status = ParseSafetensorsFile(file.bytes(), path).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("header length is 100000001 bytes"),
                                      HasSubstr("the limit is 100000000")));
  const ByteSpan json = file.bytes().subspan(8, 100'000'001);
  EXPECT_EQ(ParseSafetensorsHeader(json, path).status().code(), StatusCode::kResourceExhausted);
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  for (std::size_t size = 0; size < json.size(); ++size) {
    SCOPED_TRACE(size);
    Refusal(Parse(std::string_view(json).substr(0, size)));
  }
}

}  // namespace
}  // namespace segue
