// SPDX-License-Identifier: Apache-2.0
//
// The table of operations, filled by templates over types; semantics as in "PTX ISA", version 9.0.
#include "ptx/operations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>

namespace ptx {
namespace {

using Table = std::map<std::string, Operation>;

template <typename F>
void Each(std::uint32_t lanes, F f) {
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    f(static_cast<unsigned>(std::countr_zero(left)));
  }
}

template <typename T>
T Get(const Registers& registers, std::uint32_t number, unsigned lane) {
  const std::uint64_t value = registers.file[number].value[lane];
  if constexpr (std::is_same_v<T, bool>) {
    return (value & 1) != 0;
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
void Put(Registers& registers, std::uint32_t number, unsigned lane, T value) {
  registers.file[number].value[lane] = static_cast<std::uint64_t>(value);
}

template <typename To, typename From, typename F>
void Unary(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    Put<To>(r, i.to[0], lane, static_cast<To>(F()(Get<From>(r, i.from[0], lane))));
  });
}

template <typename To, typename From, typename F, typename Second = From>
void Binary(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    Put<To>(r, i.to[0], lane,
            static_cast<To>(F()(Get<From>(r, i.from[0], lane), Get<Second>(r, i.from[1], lane))));
  });
}

// --- arithmetic

// Wraps, as registers do.
template <template <typename> typename F, typename T>
struct Wrapping {
  T operator()(T a, T b) const {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(F<std::uint64_t>()(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  }
};
struct Less {
  template <typename T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct More {
  template <typename T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
// A division by zero gives what the machine has; none of our kernels may ask for one.
struct Quotient {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) throw Fault("division by zero");
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) throw Fault("division by zero");
    return static_cast<T>(a % b);
  }
};
// Shifts by the width and more leave nothing, or the sign.
struct ShiftLeft {
  template <typename T>
  T operator()(T a, std::uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T a, std::uint32_t by) const {
    return static_cast<T>(a >> std::min<std::uint32_t>(by, 8 * sizeof(T) - 1) >>
                          (by >= 8 * sizeof(T) ? 1 : 0));
  }
};
struct Same {
  template <typename T>
  T operator()(T a) const {
    return a;
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};
struct Negative {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(a));
  }
};
struct OneBits {
  std::uint32_t operator()(std::uint32_t a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct Reversed {
  std::uint32_t operator()(std::uint32_t a) const {
    std::uint32_t reversed = 0;
    for (unsigned bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
  }
};
// How far left the highest one must go; all ones where there is none.
struct ShiftToTop {
  std::uint32_t operator()(std::uint32_t a) const {
    return a == 0 ? ~0u : static_cast<std::uint32_t>(std::countl_zero(a));
  }
};

template <typename Wide, typename T>
void MultiplyWide(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    Put<Wide>(r, i.to[0], lane,
              static_cast<Wide>(Wide{Get<T>(r, i.from[0], lane)} * Get<T>(r, i.from[1], lane)));
  });
}

template <typename T>
void MultiplyAdd(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    const auto of = [&](unsigned k) { return Get<std::uint64_t>(r, i.from[k], lane); };
    Put<T>(r, i.to[0], lane, static_cast<T>(of(0) * of(1) + of(2)));
  });
}

// `size` bits of the first operand at bit `at` of the second.
template <typename T>
void InsertBits(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    const unsigned at = Get<std::uint8_t>(r, i.from[2], lane);
    const unsigned size = Get<std::uint8_t>(r, i.from[3], lane);
    T result = Get<T>(r, i.from[1], lane);
    for (unsigned bit = 0; bit < size && at + bit < 8 * sizeof(T); ++bit) {
      const T one = static_cast<T>(T{1} << (at + bit));
      const bool is_set = (Get<T>(r, i.from[0], lane) >> bit & 1) != 0;
      result = static_cast<T>(is_set ? result | one : result & ~one);
    }
    Put<T>(r, i.to[0], lane, result);
  });
}

// What is not chosen may be undefined.
template <typename T>
void Select(const Instruction& i, Registers& r, std::uint32_t lanes) {
  std::uint32_t first = 0;
  Each(lanes, [&](unsigned lane) {
    const bool takes_first = Get<bool>(r, i.from[2], lane);
    first |= std::uint32_t{takes_first} << lane;
    Put<T>(r, i.to[0], lane, Get<T>(r, i.from[takes_first ? 0 : 1], lane));
  });
  const std::uint32_t chosen =
      (r.file[i.from[0]].defined & first) | (r.file[i.from[1]].defined & ~first);
  std::uint32_t& defined = r.file[i.to[0]].defined;
  defined = (defined & ~lanes) | (chosen & r.file[i.from[2]].defined & lanes);
}

// Two halves to one register, or one to two halves. A compiler packs a half that nobody has written
// where it masks it away afterwards.
template <typename Whole, typename Half>
void PackOrUnpack(const Instruction& i, Registers& r, std::uint32_t lanes) {
  constexpr unsigned kBits = 8 * sizeof(Half);
  Each(lanes, [&](unsigned lane) {
    if (i.to.size() == 2) {
      const Whole whole = Get<Whole>(r, i.from[0], lane);
      Put<Half>(r, i.to[0], lane, static_cast<Half>(whole));
      Put<Half>(r, i.to[1], lane, static_cast<Half>(whole >> kBits));
    } else if (i.from.size() == 2) {
      const Whole low = Get<Half>(r, i.from[0], lane);
      const Whole high = Get<Half>(r, i.from[1], lane);
      Put<Whole>(r, i.to[0], lane, static_cast<Whole>(low | high << kBits));
    } else {
      Put<Whole>(r, i.to[0], lane, Get<Whole>(r, i.from[0], lane));
    }
  });
  if (i.from.size() != 2) return;
  const std::uint32_t defined = r.file[i.from[0]].defined | r.file[i.from[1]].defined;
  r.file[i.to[0]].defined |= defined & lanes;
}

// --- memory

template <typename T>
std::byte* PlaceOf(const Instruction& i, const Registers& r, unsigned lane, bool is_shared,
                   std::size_t count) {
  const std::uint64_t address =
      Get<std::uint64_t>(r, i.from[0], lane) + static_cast<std::uint64_t>(i.offset);
  const std::size_t size = count * sizeof(T);
  if (address % size != 0) throw Fault("address " + std::to_string(address) + " is not aligned");
  if (!is_shared) {
    if (address < 4096) throw Fault("address " + std::to_string(address));
    return reinterpret_cast<std::byte*>(address);
  }
  const std::size_t end = r.shared->bytes.size();
  if (address > end || size > end - address) {
    throw Fault("shared memory ends before " + std::to_string(address + size));
  }
  return r.shared->bytes.data() + address;
}

// Of bytes in shared memory, whether each has been written.
std::uint8_t* WrittenAt(const Registers& r, const std::byte* place) {
  return r.shared->written.data() + (place - r.shared->bytes.data());
}

template <typename T, bool kIsShared>
void Load(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    const std::byte* place = PlaceOf<T>(i, r, lane, kIsShared, i.to.size());
    if constexpr (kIsShared) {
      const std::uint8_t* const written = WrittenAt(r, place);
      if (std::memchr(written, 0, i.to.size() * sizeof(T)) != nullptr) {
        throw Fault("shared memory was never written");
      }
    }
    std::array<T, 4> values;  // All are read before one is written: the address may be among them.
    std::memcpy(values.data(), place, i.to.size() * sizeof(T));
    for (std::size_t k = 0; k < i.to.size(); ++k) Put<T>(r, i.to[k], lane, values[k]);
  });
}

// Which of two lanes that store to one place wins is not said: they must agree. (As addresses are
// aligned, they lie at one place or apart.)
template <typename T, bool kIsShared>
void Store(const Instruction& i, Registers& r, std::uint32_t lanes) {
  const std::size_t count = i.from.size() - 1;
  std::byte* last = nullptr;  // The highest place so far: lanes mostly go upwards.
  Each(lanes, [&](unsigned lane) {
    std::array<T, 4> values;
    for (std::size_t k = 0; k < count; ++k) values[k] = Get<T>(r, i.from[k + 1], lane);
    std::byte* const place = PlaceOf<T>(i, r, lane, kIsShared, count);
    if (place <= last) {
      Each(lanes & ((1u << lane) - 1), [&](unsigned other) {
        const bool agrees = PlaceOf<T>(i, r, other, kIsShared, count) != place ||
                            std::memcmp(place, values.data(), count * sizeof(T)) == 0;
        if (!agrees) throw Fault("two lanes store different values to one place");
      });
    }
    last = std::max(last, place);
    std::memcpy(place, values.data(), count * sizeof(T));
    if constexpr (kIsShared) std::memset(WrittenAt(r, place), 1, count * sizeof(T));
  });
}

void AtomicOr(const Instruction& i, Registers& r, std::uint32_t lanes) {
  Each(lanes, [&](unsigned lane) {
    std::byte* place = PlaceOf<std::uint32_t>(i, r, lane, false, 1);
    std::uint32_t value = 0;
    std::memcpy(&value, place, sizeof(value));
    Put<std::uint32_t>(r, i.to[0], lane, value);
    value |= Get<std::uint32_t>(r, i.from[1], lane);
    std::memcpy(place, &value, sizeof(value));
  });
}

// --- lanes of a warp together

enum class Shuffled { kUp, kDown, kButterfly, kIndex };

// The second result, where it is asked for, says whether the source was in range. A lane may offer
// what it has not written, if nobody uses it.
template <Shuffled kHow>
void Shuffle(const Instruction& i, Registers& r, std::uint32_t lanes) {
  const Register from = r.file[i.from[0]];
  const std::uint32_t known = r.file[i.from[1]].defined & r.file[i.from[2]].defined;
  if ((known & lanes) != lanes) throw Fault("a value was never written");
  std::uint32_t defined = 0;
  Each(lanes, [&](unsigned lane) {
    const unsigned by = Get<std::uint32_t>(r, i.from[1], lane) & 31;
    const std::uint32_t clamp = Get<std::uint32_t>(r, i.from[2], lane);
    const unsigned segment = clamp >> 8 & 31;
    const unsigned first = lane & segment;
    const unsigned bound = first | (clamp & 31 & ~segment);
    unsigned source = lane;
    bool is_inside = false;
    if constexpr (kHow == Shuffled::kUp) {
      is_inside = lane >= by + bound;
      source = lane - by;
    } else {
      if constexpr (kHow == Shuffled::kDown) source = lane + by;
      if constexpr (kHow == Shuffled::kButterfly) source = lane ^ by;
      if constexpr (kHow == Shuffled::kIndex) source = first | (by & ~segment);
      is_inside = source <= bound;
    }
    if (!is_inside) source = lane;
    if ((lanes >> source & 1) == 0) throw Fault("a shuffle from a lane that takes no part");
    Put<std::uint32_t>(r, i.to[0], lane, static_cast<std::uint32_t>(from.value[source]));
    defined |= (from.defined >> source & 1) << lane;
    if (i.to.size() == 2) Put<bool>(r, i.to[1], lane, is_inside);
  });
  for (const std::uint32_t number : i.to) r.file[number].defined |= lanes;
  std::uint32_t& result = r.file[i.to[0]].defined;
  result = (result & ~lanes) | (defined & lanes);
}

std::uint32_t BallotOf(const Instruction& i, const Registers& r, std::uint32_t lanes) {
  std::uint32_t ballot = 0;
  Each(lanes,
       [&](unsigned lane) { ballot |= std::uint32_t{Get<bool>(r, i.from[0], lane)} << lane; });
  return ballot;
}

void Ballot(const Instruction& i, Registers& r, std::uint32_t lanes) {
  const std::uint32_t ballot = BallotOf(i, r, lanes);
  Each(lanes, [&](unsigned lane) { Put<std::uint32_t>(r, i.to[0], lane, ballot); });
}

void Any(const Instruction& i, Registers& r, std::uint32_t lanes) {
  const bool any = BallotOf(i, r, lanes) != 0;
  Each(lanes, [&](unsigned lane) { Put<bool>(r, i.to[0], lane, any); });
}

void ReduceOr(const Instruction& i, Registers& r, std::uint32_t lanes) {
  std::uint32_t bits = 0;
  Each(lanes, [&](unsigned lane) { bits |= Get<std::uint32_t>(r, i.from[0], lane); });
  Each(lanes, [&](unsigned lane) { Put<std::uint32_t>(r, i.to[0], lane, bits); });
}

void Nothing(const Instruction&, Registers&, std::uint32_t) {}

// --- the table

template <typename T>
constexpr char kLetter = std::is_same_v<T, bool> ? 'p'
                         : std::is_signed_v<T>   ? 's'
                                                 : 'u';

template <typename T>
std::string TypeName() {
  return kLetter<T> + std::to_string(8 * sizeof(T));
}

template <typename T>
void AddComparisons(Table& table) {
  const std::string type = "." + TypeName<T>();
  table["setp.lt" + type] = {Binary<bool, T, std::less<T>>};
  table["setp.le" + type] = {Binary<bool, T, std::less_equal<T>>};
  table["setp.gt" + type] = {Binary<bool, T, std::greater<T>>};
  table["setp.ge" + type] = {Binary<bool, T, std::greater_equal<T>>};
  table["setp.eq" + type] = {Binary<bool, T, std::equal_to<T>>};
  table["setp.ne" + type] = {Binary<bool, T, std::not_equal_to<T>>};
}

template <typename T>
void AddArithmetic(Table& table) {
  const std::string type = "." + TypeName<T>();
  table["add" + type] = {Binary<T, T, Wrapping<std::plus, T>>};
  table["sub" + type] = {Binary<T, T, Wrapping<std::minus, T>>};
  table["mul.lo" + type] = {Binary<T, T, Wrapping<std::multiplies, T>>};
  table["mad.lo" + type] = {MultiplyAdd<T>};
  table["div" + type] = {Binary<T, T, Quotient>};
  table["rem" + type] = {Binary<T, T, Remainder>};
  table["min" + type] = {Binary<T, T, Less>};
  table["max" + type] = {Binary<T, T, More>};
  table["neg" + type] = {Unary<T, T, Negative>};
  table["shr" + type] = {Binary<T, T, ShiftRight, std::uint32_t>};
  table["selp" + type] = {Select<T>};
  table["mov" + type] = {Unary<T, T, Same>};
  AddComparisons<T>(table);
}

// Bits without a sign.
template <typename T>
void AddLogic(Table& table, const std::string& type) {
  table["and" + type] = {Binary<T, T, std::bit_and<T>>};
  table["or" + type] = {Binary<T, T, std::bit_or<T>>};
  table["xor" + type] = {Binary<T, T, std::bit_xor<T>>};
  table["not" + type] = {Unary<T, T, Not>};
  table["mov" + type] = {Unary<T, T, Same>};
  if constexpr (!std::is_same_v<T, bool>) {
    table["shl" + type] = {Binary<T, T, ShiftLeft, std::uint32_t>};
    table["shr" + type] = {Binary<T, T, ShiftRight, std::uint32_t>};
    table["bfi" + type] = {InsertBits<T>};
    table["selp" + type] = {Select<T>};
    table["setp.eq" + type] = {Binary<bool, T, std::equal_to<T>>};
    table["setp.ne" + type] = {Binary<bool, T, std::not_equal_to<T>>};
  }
}

template <typename T>
void AddMemory(Table& table) {
  for (const char* vector : {"", ".v2", ".v4"}) {
    const std::string type = vector + ("." + TypeName<T>());
    table["ld" + type] = {Load<T, false>, Step::kPlain, true, true};
    table["ld.shared" + type] = {Load<T, true>, Step::kPlain, true};
    table["st" + type] = {Store<T, false>, Step::kPlain, true, true};
    table["st.shared" + type] = {Store<T, true>, Step::kPlain, true};
  }
  table["ld.param." + TypeName<T>()] = {Unary<T, T, Same>};
}

template <typename To, typename... From>
void AddConversions(Table& table) {
  ((table["cvt." + TypeName<To>() + "." + TypeName<From>()] = {Unary<To, From, Same>}), ...);
}

template <typename... T>
void AddTypes(Table& table) {
  (AddArithmetic<T>(table), ...);
  (AddMemory<T>(table), ...);
  (AddConversions<T, T...>(table), ...);
}

void AddCollectives(Table& table) {
  table["shfl.sync.up.b32"] = {Shuffle<Shuffled::kUp>, Step::kCollective};
  table["shfl.sync.down.b32"] = {Shuffle<Shuffled::kDown>, Step::kCollective};
  table["shfl.sync.bfly.b32"] = {Shuffle<Shuffled::kButterfly>, Step::kCollective};
  table["shfl.sync.idx.b32"] = {Shuffle<Shuffled::kIndex>, Step::kCollective};
  const auto together = [](auto run) { return Operation{run, Step::kCollective, true}; };
  table["vote.sync.ballot.b32"] = together(Ballot);
  table["vote.sync.any.pred"] = together(Any);
  table["redux.sync.or.b32"] = together(ReduceOr);
  table["bar.warp.sync"] = together(Nothing);
}

Table MakeTable() {
  Table table;
  AddTypes<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
           std::int32_t, std::int64_t>(table);
  AddLogic<std::uint16_t>(table, ".b16");
  AddLogic<std::uint32_t>(table, ".b32");
  AddLogic<std::uint64_t>(table, ".b64");
  AddLogic<bool>(table, ".pred");
  table["mov.b32"] = {PackOrUnpack<std::uint32_t, std::uint16_t>};
  table["mov.b64"] = {PackOrUnpack<std::uint64_t, std::uint32_t>};
  table["mul.wide.u16"] = {MultiplyWide<std::uint32_t, std::uint16_t>};
  table["mul.wide.u32"] = {MultiplyWide<std::uint64_t, std::uint32_t>};
  table["mul.wide.s32"] = {MultiplyWide<std::int64_t, std::int32_t>};
  table["popc.b32"] = {Unary<std::uint32_t, std::uint32_t, OneBits>};
  table["brev.b32"] = {Unary<std::uint32_t, std::uint32_t, Reversed>};
  table["bfind.shiftamt.u32"] = {Unary<std::uint32_t, std::uint32_t, ShiftToTop>};
  table["cvta.to.u64"] = {Unary<std::uint64_t, std::uint64_t, Same>};  // Of global memory.
  table["atom.or.b32"] = {AtomicOr, Step::kPlain, true, true};
  table["bra"] = {nullptr, Step::kBranch, false};
  table["ret"] = {nullptr, Step::kReturn, false};
  table["bar.sync"] = {Nothing, Step::kBarrier, false};
  AddCollectives(table);
  return table;
}

}  // namespace

const Operation& FindOperation(const std::string& name) {
  static const Table table = MakeTable();
  const auto found = table.find(name);
  if (found == table.end()) throw Fault("instruction '" + name + "' is not known");
  return found->second;
}

}  // namespace ptx
