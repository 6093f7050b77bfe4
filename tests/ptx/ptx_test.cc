// SPDX-License-Identifier: Apache-2.0
//
// The machine that runs compiled kernels: each instruction against the same in C++ over values at
// the borders, lanes that part and meet, and every fault that it has to find. Programs are written
// out here in PTX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ptx/machine.h"

namespace ptx {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kBorders[] = {
    0,          1,          2,          31,         32,         33,         63,
    64,         0x7f,       0x80,       0xff,       0x7fff,     0x8000,     0xffff,
    0x12345678, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 63, ~0ull};

// A kernel of two parameters, %rd1 and %rd2 in the body.
std::string Program(const std::string& body, const std::string& declarations = "") {
  return ".version 9.0\n.target sm_80\n.visible .entry test(\n\t.param .u64 test_param_0,\n"
         "\t.param .u64 test_param_1\n)\n.maxntid 256, 1, 1\n{\n\t.reg .b64 \t%rd<9>;\n" +
         declarations +
         "\n\tld.param.u64 \t%rd1, [test_param_0];\n\tld.param.u64 \t%rd2, [test_param_1];\n" +
         body + "\tret;\n\n}\n";
}

void RunProgram(const std::string& text, const void* first, std::uint64_t second,
                unsigned threads = kLaneCount, std::uint64_t seed = 0, unsigned blocks = 1) {
  const auto kernels = Parse(text);
  const std::uint64_t arguments[] = {reinterpret_cast<std::uint64_t>(first), second};
  Run(kernels.at("test"), arguments, blocks, threads, {seed});
}

// The address of lane's own 64-bit word in %rd4, its number in %r1.
const std::string kOwnWord =
    "\tmov.u32 \t%r1, %tid.x;\n\tmul.wide.u32 \t%rd3, %r1, 8;\n\tadd.s64 \t%rd4, %rd1, %rd3;\n";

std::string FaultOf(const std::string& body, std::uint64_t second = 0,
                    const std::string& declarations = "") {
  alignas(16) std::uint64_t words[kLaneCount] = {};
  try {
    RunProgram(Program(kOwnWord + body, declarations), words, second);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

// What `instruction` makes of %rd2 and of the lane's word, which it finds in %rd5, in %rd6.
std::uint64_t Compute(const std::string& instruction, std::uint64_t a, std::uint64_t b) {
  std::uint64_t words[kLaneCount];
  std::fill(std::begin(words), std::end(words), b);
  RunProgram(Program(kOwnWord + "\tld.global.u64 \t%rd5, [%rd4];\n\tmov.u64 \t%rd6, 0;\n\t" +
                     instruction + "\n\tst.global.u64 \t[%rd4], %rd6;\n"),
             words, a);
  for (const std::uint64_t word : words) EXPECT_EQ(word, words[0]);
  return words[0];
}

template <typename To, typename From>
void ExpectBinary(const std::string& name, const std::function<To(From, From)>& expected,
                  bool divides = false) {
  for (const std::uint64_t a : kBorders) {
    for (const std::uint64_t b : kBorders) {
      if (divides && static_cast<From>(b) == 0) continue;
      const auto found = static_cast<To>(Compute(name + " \t%rd6, %rd2, %rd5;", a, b));
      ASSERT_EQ(found, expected(static_cast<From>(a), static_cast<From>(b)))
          << name << " " << a << " " << b;
    }
  }
}

TEST(PtxTest, Arithmetic) {
  ExpectBinary<std::uint32_t, std::uint32_t>("add.s32", [](auto a, auto b) { return a + b; });
  ExpectBinary<std::uint64_t, std::uint64_t>("add.s64", [](auto a, auto b) { return a + b; });
  ExpectBinary<std::uint32_t, std::uint32_t>("sub.s32", [](auto a, auto b) { return a - b; });
  ExpectBinary<std::uint64_t, std::uint64_t>("mul.lo.s64", [](auto a, auto b) { return a * b; });
  ExpectBinary<std::uint64_t, std::uint32_t>("mul.wide.u32",
                                             [](auto a, auto b) { return std::uint64_t{a} * b; });
  ExpectBinary<std::uint64_t, std::uint64_t>(
      "div.u64", [](auto a, auto b) { return a / b; }, true);
  ExpectBinary<std::uint32_t, std::uint32_t>(
      "rem.u32", [](auto a, auto b) { return a % b; }, true);
  ExpectBinary<std::uint32_t, std::uint32_t>("min.u32",
                                             [](auto a, auto b) { return a < b ? a : b; });
  ExpectBinary<std::uint64_t, std::uint64_t>("max.u64",
                                             [](auto a, auto b) { return a < b ? b : a; });
}

TEST(PtxTest, BitsAndShifts) {
  ExpectBinary<std::uint64_t, std::uint64_t>("xor.b64", [](auto a, auto b) { return a ^ b; });
  ExpectBinary<std::uint32_t, std::uint32_t>("and.b32", [](auto a, auto b) { return a & b; });
  ExpectBinary<std::uint32_t, std::uint32_t>("shl.b32",
                                             [](auto a, auto b) { return b > 31 ? 0 : a << b; });
  ExpectBinary<std::uint32_t, std::uint32_t>("shr.u32",
                                             [](auto a, auto b) { return b > 31 ? 0 : a >> b; });
  ExpectBinary<std::uint64_t, std::uint64_t>("shr.u64", [](auto a, auto b) {
    return static_cast<std::uint32_t>(b) > 63 ? 0 : a >> static_cast<std::uint32_t>(b);
  });
  for (const std::uint64_t a : kBorders) {
    const auto low = static_cast<std::uint32_t>(a);
    EXPECT_EQ(Compute("popc.b32 \t%rd6, %rd2;", a, 0),
              static_cast<std::uint64_t>(std::popcount(low)));
    EXPECT_EQ(Compute("bfind.shiftamt.u32 \t%rd6, %rd2;", a, 0),
              low == 0 ? 0xffffffff : static_cast<std::uint64_t>(std::countl_zero(low)));
    EXPECT_EQ(std::popcount(Compute("brev.b32 \t%rd6, %rd2;", a, 0)), std::popcount(low));
    EXPECT_EQ(Compute("bfi.b64 \t%rd6, %rd5, %rd2, 8, 8;", a, 0x1ff), a | 0xff00);
    EXPECT_EQ(Compute("not.b64 \t%rd6, %rd2;", a, 0), ~a);
    EXPECT_EQ(Compute("neg.s64 \t%rd6, %rd2;", a, 0), 0 - a);
  }
  EXPECT_EQ(Compute("brev.b32 \t%rd6, %rd2;", 0x80000002, 0), 0x40000001u);
}

template <typename T>
void ExpectComparison(const std::string& type) {
  const std::pair<const char*, std::function<bool(T, T)>> kinds[] = {
      {"lt", std::less<T>()},     {"le", std::less_equal<T>()},
      {"gt", std::greater<T>()},  {"ge", std::greater_equal<T>()},
      {"eq", std::equal_to<T>()}, {"ne", std::not_equal_to<T>()}};
  for (const auto& [kind, expected] : kinds) {
    const std::string name = std::string("setp.") + kind + "." + type;
    for (const std::uint64_t a : kBorders) {
      for (const std::uint64_t b : kBorders) {
        const std::uint64_t found =
            Compute(name + " \t%p1, %rd2, %rd5;\n\tselp.u64 \t%rd6, 7, 9, %p1;", a, b);
        ASSERT_EQ(found, expected(static_cast<T>(a), static_cast<T>(b)) ? 7u : 9u)
            << name << " " << a << " " << b;
      }
    }
  }
}

TEST(PtxTest, ComparisonsWithAndWithoutASign) {
  ExpectComparison<std::uint32_t>("u32");
  ExpectComparison<std::int32_t>("s32");
  ExpectComparison<std::uint64_t>("u64");
  ExpectComparison<std::int16_t>("s16");
}

TEST(PtxTest, Conversions) {
  EXPECT_EQ(Compute("cvt.u32.u64 \t%rd6, %rd2;", 0x1234567890, 0), 0x34567890u);
  EXPECT_EQ(Compute("cvt.u64.u16 \t%rd6, %rd2;", 0x1234567890, 0), 0x7890u);
  EXPECT_EQ(Compute("cvt.s64.s32 \t%rd6, %rd2;", 0x80000000, 0), 0xffffffff80000000u);
  EXPECT_EQ(Compute("mov.b64 \t{%r5, %r6}, %rd2;\n\tmov.b64 \t%rd6, {%r6, %r5};", 0x100000002, 0),
            0x200000001u);
  EXPECT_EQ(Compute("{ .reg .b32 tmp; mov.b64 {tmp, %r5}, %rd2; }\n\tcvt.u64.u32 \t%rd6, %r5;",
                    0x700000002, 0),
            7u);
}

TEST(PtxTest, MemoryOfEveryWidth) {
  alignas(16) std::uint8_t bytes[64];
  for (unsigned i = 0; i < sizeof(bytes); ++i) bytes[i] = static_cast<std::uint8_t>(0xf0 + i);
  RunProgram(Program("\tld.global.v4.u32 \t{%r1, %r2, %r3, %r4}, [%rd1];\n"
                     "\tst.global.v4.u32 \t[%rd1+32], {%r4, %r3, %r2, %r1};\n"
                     "\tadd.s64 \t%rd3, %rd1, 50;\n\tld.s8 \t%rs1, [%rd1];\n"
                     "\tst.u16 \t[%rd3+-2], %rs1;\n\tst.u8 \t[%rd3], 5;\n"),
             bytes, 0);
  EXPECT_EQ(std::memcmp(bytes + 32, bytes + 12, 4), 0);
  EXPECT_EQ(std::memcmp(bytes + 44, bytes, 4), 0);
  EXPECT_EQ(bytes[48], 0xf0);  // With its sign.
  EXPECT_EQ(bytes[49], 0xff);
  EXPECT_EQ(bytes[50], 5);
  EXPECT_EQ(bytes[51], 0xf0 + 51 - 256);
}

// One word a lane, after `body` has put it into %r2.
std::vector<std::uint64_t> EachLane(const std::string& body, std::uint64_t seed = 0) {
  std::vector<std::uint64_t> words(kLaneCount);
  RunProgram(Program(kOwnWord + body + "\tcvt.u64.u32 \t%rd5, %r2;\n\tst.u64 \t[%rd4], %rd5;\n"),
             words.data(), 0, kLaneCount, seed);
  return words;
}

TEST(PtxTest, Shuffles) {
  const auto up = EachLane("\tshfl.sync.up.b32 \t%r2|%p1, %r1, 3, 0, -1;\n");
  const auto index = EachLane("\tshfl.sync.idx.b32 \t%r2|%p1, %r1, 5, 31, -1;\n");
  const auto across = EachLane("\tshfl.sync.bfly.b32 \t%r2|%p1, %r1, 16, 31, -1;\n");
  const auto down = EachLane("\tshfl.sync.down.b32 \t%r2|%p1, %r1, 1, 31, -1;\n");
  const auto halves = EachLane("\tshfl.sync.idx.b32 \t%r2|%p1, %r1, 1, 0x101f, -1;\n");
  for (unsigned lane = 0; lane < kLaneCount; ++lane) {
    EXPECT_EQ(up[lane], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(index[lane], 5u);
    EXPECT_EQ(across[lane], lane ^ 16);
    EXPECT_EQ(down[lane], lane == 31 ? 31 : lane + 1);
    EXPECT_EQ(halves[lane], lane < 16 ? 1u : 17u);
  }
}

TEST(PtxTest, Votes) {
  const std::string odd = "\tand.b32 \t%r3, %r1, 1;\n\tsetp.eq.s32 \t%p1, %r3, 1;\n";
  for (const std::uint64_t word : EachLane(odd + "\tvote.sync.ballot.b32 \t%r2, %p1, -1;\n")) {
    EXPECT_EQ(word, 0xaaaaaaaau);
  }
  for (const std::uint64_t word : EachLane("\tredux.sync.or.b32 \t%r2, %r1, -1;\n")) {
    EXPECT_EQ(word, 31u);
  }
  const std::string any = "\tvote.sync.any.pred \t%p2, %p1, -1;\n\tselp.u32 \t%r2, 1, 0, %p2;\n";
  EXPECT_EQ(EachLane(odd + any)[0], 1u);
  EXPECT_EQ(EachLane("\tsetp.gt.u32 \t%p1, %r1, 31;\n" + any)[0], 0u);
}

// Each lane goes round as often as its number says, and all meet behind.
TEST(PtxTest, LanesPartAndMeet) {
  const std::string body =
      "\tmov.u32 \t%r2, 0;\n\tmov.u32 \t%r3, 0;\n$L_1:\n\tsetp.ge.u32 \t%p1, %r3, %r1;\n"
      "\t@%p1 bra \t$L_2;\n\tadd.s32 \t%r2, %r2, 2;\n\tadd.s32 \t%r3, %r3, 1;\n"
      "\tbra.uni \t$L_1;\n\n$L_2:\n\tshfl.sync.bfly.b32 \t%r4|%p2, %r2, 1, 31, -1;\n"
      "\tadd.s32 \t%r2, %r2, %r4;\n";
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const auto words = EachLane(body, seed);
    for (unsigned lane = 0; lane < kLaneCount; ++lane) {
      EXPECT_EQ(words[lane], 2 * lane + 2 * (lane ^ 1)) << seed;
    }
  }
}

// Warps of a block see what others wrote to shared memory before the barrier.
TEST(PtxTest, BlockAndItsBarrier) {
  constexpr unsigned kThreads = 128;
  const std::string shared = "\t.shared .align 16 .b8 box[512];\n";
  const std::string body = kOwnWord +
                           "\tmov.u32 \t%r2, box;\n\tshl.b32 \t%r3, %r1, 2;\n"
                           "\tadd.s32 \t%r4, %r2, %r3;\n\tst.shared.u32 \t[%r4], %r1;\n"
                           "\tbar.sync \t0;\n\tmov.u32 \t%r5, %ntid.x;\n"
                           "\tsub.s32 \t%r5, %r5, 1;\n\tsub.s32 \t%r5, %r5, %r1;\n"
                           "\tshl.b32 \t%r5, %r5, 2;\n\tadd.s32 \t%r5, %r2, %r5;\n"
                           "\tld.shared.u32 \t%rd5, [%r5];\n\tst.u64 \t[%rd4], %rd5;\n";
  for (const std::uint64_t seed : {0, 1, 2}) {
    std::vector<std::uint64_t> words(kThreads);
    RunProgram(Program(body, shared), words.data(), 0, kThreads, seed);
    for (unsigned i = 0; i < kThreads; ++i) EXPECT_EQ(words[i], kThreads - 1 - i);
  }
}

TEST(PtxTest, BlocksHaveTheirNumbers) {
  std::uint32_t counts[4] = {};
  RunProgram(Program("\tmov.u32 \t%r1, %ctaid.x;\n\tmul.wide.u32 \t%rd3, %r1, 4;\n"
                     "\tadd.s64 \t%rd4, %rd1, %rd3;\n\tmov.u32 \t%r2, %tid.x;\n"
                     "\tmov.u32 \t%r3, 1;\n\tshl.b32 \t%r3, %r3, %r2;\n"
                     "\tatom.or.b32 \t%r4, [%rd4], %r3;\n"),
             counts, 0, kLaneCount, 5, 4);
  for (const std::uint32_t count : counts) EXPECT_EQ(count, kAllLanes);
}

TEST(PtxTest, BlocksAreOfTheSizeTheyAreCompiledFor) {
  std::uint64_t word = 0;
  RunProgram(Program(""), &word, 0, 256);
  EXPECT_THROW(RunProgram(Program(""), &word, 0, 288), Fault);
}

TEST(PtxTest, FaultsOfMemory) {
  EXPECT_THAT(FaultOf("\tld.u64 \t%rd5, [%rd4+4];\n"), HasSubstr("is not aligned"));
  EXPECT_THAT(FaultOf("\tst.v4.u32 \t[%rd4+8], {%r1, %r1, %r1, %r1};\n"),
              HasSubstr("is not aligned"));
  EXPECT_THAT(FaultOf("\tld.u8 \t%rs1, [%rd2];\n"), HasSubstr("address 0"));
  const std::string shared = "\t.shared .align 16 .b8 box[64];\n";
  const std::string beyond = "\tmov.u32 \t%r2, box;\n\tst.shared.u32 \t[%r2+64], %r1;\n";
  EXPECT_THAT(FaultOf(beyond, 0, shared), HasSubstr("shared memory ends"));
  EXPECT_THAT(FaultOf("\tst.u64 \t[%rd1+8], %rd4;\n"), HasSubstr("two lanes store different"));
  EXPECT_EQ(FaultOf("\tst.u64 \t[%rd1+8], %rd1;\n"), "");
}

// Shared memory is no more zero at first than registers are.
TEST(PtxTest, FaultsOfSharedMemoryThatWasNeverWritten) {
  const std::string shared = "\t.shared .align 16 .b8 box[256];\n";
  const std::string own =
      "\tmov.u32 \t%r2, box;\n\tshl.b32 \t%r3, %r1, 2;\n\tadd.s32 \t%r4, %r2, %r3;\n";
  const std::string load = "\tld.shared.u32 \t%r5, [%r4];\n";
  const std::string store = "\tst.shared.u32 \t[%r4], %r1;\n";
  EXPECT_THAT(FaultOf(own + load, 0, shared), HasSubstr("shared memory was never written"));
  EXPECT_THAT(FaultOf(own + "\tst.shared.u16 \t[%r4], 1;\n" + load, 0, shared),
              HasSubstr("shared memory was never written"));
  EXPECT_EQ(FaultOf(own + store + load, 0, shared), "");
  // What the lane above has written, before it may have.
  const std::string above = "\tsetp.lt.u32 \t%p1, %r1, 31;\n\t@%p1 ld.shared.u32 \t%r5, [%r4+4];\n";
  EXPECT_EQ(FaultOf(own + store + "\tbar.warp.sync \t-1;\n" + above, 0, shared), "");
}

TEST(PtxTest, FaultsOfWhatWasNeverWritten) {
  EXPECT_THAT(FaultOf("\tst.u64 \t[%rd4], %rd7;\n"), HasSubstr("never written"));
  EXPECT_THAT(FaultOf("\tadd.s64 \t%rd6, %rd7, 1;\n\tst.u64 \t[%rd4], %rd6;\n"),
              HasSubstr("never written"));
  EXPECT_THAT(FaultOf("\t@%p7 bra \t$L_1;\n$L_1:\n"), HasSubstr("predicate was never written"));
  // In half of the lanes.
  EXPECT_THAT(FaultOf("\tsetp.lt.u32 \t%p1, %r1, 16;\n\t@%p1 mov.u64 \t%rd6, 3;\n"
                      "\tst.u64 \t[%rd4], %rd6;\n"),
              HasSubstr("never written"));
  EXPECT_THAT(FaultOf("\tshfl.sync.idx.b32 \t%r5|%p2, %r1, %r7, 31, -1;\n"),
              HasSubstr("never written"));
  EXPECT_THAT(FaultOf("\tbar.warp.sync \t%r7;\n"), HasSubstr("the mask was never written"));
  // What is not chosen, and what nobody uses, need not be.
  EXPECT_EQ(FaultOf("\tsetp.lt.u32 \t%p1, %r1, 99;\n\tselp.u64 \t%rd6, 3, %rd7, %p1;\n"
                    "\tshfl.sync.up.b32 \t%r5|%p2, %r6, 1, 0, -1;\n\tst.u64 \t[%rd4], %rd6;\n"),
            "");
}

TEST(PtxTest, FaultsOfLanesThatDoNotMeet) {
  const std::string parted =
      "\tsetp.lt.u32 \t%p1, %r1, 16;\n\t@%p1 bra \t$L_1;\n"
      "\tbar.warp.sync \t-1;\n$L_1:\n\tbar.warp.sync \t-1;\n";
  EXPECT_THAT(FaultOf(parted), HasSubstr("lanes wait for others"));
  EXPECT_THAT(FaultOf("\tsetp.lt.u32 \t%p1, %r1, 16;\n\t@%p1 ret;\n\tbar.warp.sync \t-1;\n"),
              HasSubstr("a lane that has returned"));
  EXPECT_THAT(FaultOf("\tdiv.u64 \t%rd6, %rd4, %rd2;\n"), HasSubstr("division by zero"));
  // One lane names itself alone; a block's barrier at two places.
  EXPECT_THAT(FaultOf("\tsetp.eq.s32 \t%p1, %r1, 31;\n\tselp.b32 \t%r2, 1, -1, %p1;\n"
                      "\tbar.warp.sync \t%r2;\n"),
              HasSubstr("lanes name others"));
  EXPECT_THAT(FaultOf("\tsetp.lt.u32 \t%p1, %r1, 16;\n\t@%p1 bra \t$L_1;\n\tbar.sync \t0;\n"
                      "\tret;\n$L_1:\n\tbar.sync \t0;\n"),
              HasSubstr("wait at another barrier"));
}

TEST(PtxTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(FaultOf("\tfma.rn.f32 \t%f1, %f1, %f1, %f1;\n"), HasSubstr("'fma.rn.f32'"));
  EXPECT_THAT(FaultOf("\tbra \t$L_9;\n"), HasSubstr("no label"));
  EXPECT_THAT(FaultOf("\tadd.s32 \t%r2, %r1, 0f3F800000;\n"), HasSubstr("not understood"));
  EXPECT_THAT(FaultOf("\tsetp.eq.s32 \t%p1|%p2, %r1, 3;\n"), HasSubstr("not understood"));
  EXPECT_THAT(FaultOf("\tbar.sync \t1;\n"), HasSubstr("not understood"));
  EXPECT_THAT(FaultOf("\tld.param.u32 \t%r2, [test_param_0+4];\n"), HasSubstr("not understood"));
  EXPECT_THAT(FaultOf("", 0, "\t.local .b8 stack[16];\n"), HasSubstr("'.local'"));
}

}  // namespace
}  // namespace ptx
