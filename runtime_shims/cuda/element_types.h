// How the bytes of each dtype are read: as a number that compares, or as one of the special values.
//
// Compiles for the device and for the host, with the same results bit for bit.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define AOTI_DEBUG_FN __host__ __device__ __forceinline__
#define AOTI_DEBUG_UNROLL _Pragma("unroll")
#define AOTI_DEBUG_ROLL _Pragma("unroll 1")
#else
#define AOTI_DEBUG_FN inline
#define AOTI_DEBUG_UNROLL
#define AOTI_DEBUG_ROLL
#endif

namespace aoti_debug::cuda {

// Two 64-bit words of a tensor's elements in row-major order: what one thread reads at a time.
struct alignas(16) Chunk {
  uint64_t words[2];
};
constexpr uint32_t kChunkBytes = sizeof(Chunk);

enum class Special : uint32_t { nan, pos_inf, neg_inf };

template <class To, class From>
AOTI_DEBUG_FN To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// What the min and max of a dtype are carried in: a double, or an integer that holds every value exactly.
template <class Number>
constexpr uint32_t integer_kind() {
  return static_cast<Number>(0.5) != 0 ? 0u : static_cast<Number>(-1) < Number(0) ? 1u : 2u;
}

template <bool kLong>
struct RawOf {
  using Type = uint32_t;
};
template <>
struct RawOf<true> {
  using Type = uint64_t;
};

// An element type offers: Number (compared), Wide (recorded), bytes, scaled (its squares may overflow a double),
// counted (its values are looked at), and finite, special (of what is not finite) and number (of what is).
template <class NumberType, class WideType, uint32_t kBytes, bool kScaled = false>
struct ElementType {
  using Number = NumberType;
  using Wide = WideType;
  using Raw = typename RawOf<(kBytes > 4)>::Type;
  static constexpr uint32_t bytes = kBytes;
  static constexpr bool scaled = kScaled;
  static constexpr bool counted = true;

  // Element k of a chunk, zero-extended.
  static AOTI_DEBUG_FN Raw raw(const Chunk& chunk, uint32_t k) {
    constexpr uint32_t per_word = 8 / kBytes;
    const Raw raw = static_cast<Raw>((k < per_word ? chunk.words[0] : chunk.words[1]) >> (k % per_word * kBytes * 8));
    return raw & static_cast<Raw>(~uint64_t(0) >> (64 - kBytes * 8));
  }
};

template <class NumberType, class WideType, class Stored>
struct Integer : ElementType<NumberType, WideType, sizeof(Stored)> {
  using Raw = typename ElementType<NumberType, WideType, sizeof(Stored)>::Raw;
  static AOTI_DEBUG_FN bool finite(Raw) { return true; }
  static AOTI_DEBUG_FN Special special(Raw) { return Special::nan; }
  static AOTI_DEBUG_FN NumberType number(Raw raw) { return static_cast<NumberType>(static_cast<Stored>(raw)); }
};
using UInt8 = Integer<uint32_t, int64_t, uint8_t>;
using UInt16 = Integer<uint32_t, int64_t, uint16_t>;
using UInt32 = Integer<uint32_t, int64_t, uint32_t>;
using UInt64 = Integer<uint64_t, uint64_t, uint64_t>;
using Int8 = Integer<int32_t, int64_t, int8_t>;
using Int16 = Integer<int32_t, int64_t, int16_t>;
using Int32 = Integer<int32_t, int64_t, int32_t>;
using Int64 = Integer<int64_t, int64_t, int64_t>;

struct Bool : Integer<int32_t, int64_t, uint8_t> {
  static AOTI_DEBUG_FN int32_t number(uint32_t raw) { return raw != 0; }
};

struct Float32 : ElementType<float, double, 4> {
  static constexpr uint32_t infinity = 0x7f800000u;
  static AOTI_DEBUG_FN bool finite(uint32_t raw) { return (raw & infinity) != infinity; }
  static AOTI_DEBUG_FN Special special(uint32_t raw) {
    return (raw & 0x7fffffffu) != infinity ? Special::nan : raw >> 31 ? Special::neg_inf : Special::pos_inf;
  }
  static AOTI_DEBUG_FN float number(uint32_t raw) { return bits_as<float>(raw); }
};

struct Float64 : ElementType<double, double, 8, true> {
  static constexpr uint64_t infinity = 0x7ff0000000000000u;
  static AOTI_DEBUG_FN bool finite(uint64_t raw) { return (raw & infinity) != infinity; }
  static AOTI_DEBUG_FN Special special(uint64_t raw) {
    return (raw & ~(uint64_t(1) << 63)) != infinity ? Special::nan : raw >> 63 ? Special::neg_inf : Special::pos_inf;
  }
  static AOTI_DEBUG_FN double number(uint64_t raw) { return bits_as<double>(raw); }
};

struct BFloat16 : ElementType<float, double, 2> {
  static AOTI_DEBUG_FN bool finite(uint32_t raw) { return Float32::finite(raw << 16); }
  static AOTI_DEBUG_FN Special special(uint32_t raw) { return Float32::special(raw << 16); }
  static AOTI_DEBUG_FN float number(uint32_t raw) { return Float32::number(raw << 16); }
};

// Sign, kExponent bits and kMantissa bits of a small format, with kBias: moved into a float's fields and rescaled,
// which is exact for subnormals too.
template <uint32_t kExponent, uint32_t kMantissa, int kBias>
AOTI_DEBUG_FN float widen(uint32_t raw) {
  constexpr uint32_t sign = 1u << (kExponent + kMantissa);
  const auto magnitude = bits_as<float>((raw & (sign - 1)) << (23 - kMantissa));
  const float value = magnitude * bits_as<float>(static_cast<uint32_t>(254 - kBias) << 23);
  return raw & sign ? -value : value;
}

// IEEE formats: an exponent of ones is an infinity or a NaN.
template <uint32_t kExponent, uint32_t kMantissa>
struct SmallIeee : ElementType<float, double, (1 + kExponent + kMantissa) / 8> {
  static constexpr uint32_t infinity = ((1u << kExponent) - 1) << kMantissa;
  static AOTI_DEBUG_FN bool finite(uint32_t raw) { return (raw & infinity) != infinity; }
  static AOTI_DEBUG_FN Special special(uint32_t raw) {
    const uint32_t sign = 1u << (kExponent + kMantissa);
    return (raw & (sign - 1)) != infinity ? Special::nan : raw & sign ? Special::neg_inf : Special::pos_inf;
  }
  static AOTI_DEBUG_FN float number(uint32_t raw) {
    return widen<kExponent, kMantissa, (1 << (kExponent - 1)) - 1>(raw);
  }
};
using Float16 = SmallIeee<5, 10>;
using Float8e5m2 = SmallIeee<5, 2>;

// Formats without infinities, with the given patterns (bits & kNanMask) == kNan for NaN.
template <uint32_t kExponent, uint32_t kMantissa, int kBias, uint32_t kNanMask, uint32_t kNan>
struct SmallFinite : ElementType<float, double, 1> {
  static AOTI_DEBUG_FN bool finite(uint32_t raw) { return (raw & kNanMask) != kNan; }
  static AOTI_DEBUG_FN Special special(uint32_t) { return Special::nan; }
  static AOTI_DEBUG_FN float number(uint32_t raw) { return widen<kExponent, kMantissa, kBias>(raw); }
};
using Float8e4m3fn = SmallFinite<4, 3, 7, 0x7f, 0x7f>;
using Float8e4m3fnuz = SmallFinite<4, 3, 8, 0xff, 0x80>;
using Float8e5m2fnuz = SmallFinite<5, 2, 16, 0xff, 0x80>;

// A power of two: the exponent's bits alone.
struct Float8e8m0 : ElementType<float, double, 1> {
  static AOTI_DEBUG_FN bool finite(uint32_t raw) { return raw != 0xff; }
  static AOTI_DEBUG_FN Special special(uint32_t) { return Special::nan; }
  static AOTI_DEBUG_FN float number(uint32_t raw) { return bits_as<float>(raw == 0 ? 0x00400000u : raw << 23); }
};

AOTI_DEBUG_FN double square_root(double value) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(value);
#else
  return __builtin_sqrt(value);
#endif
}

// A complex element counts once, by its magnitude: infinite if a part is, otherwise NaN if a part is.
template <class Part>
struct SmallComplex : ElementType<double, double, 2 * Part::bytes> {
  using Raw = typename ElementType<double, double, 2 * Part::bytes>::Raw;
  static AOTI_DEBUG_FN uint32_t real(Raw raw) {
    return static_cast<uint32_t>(raw) & (0xffffffffu >> (32 - Part::bytes * 8));
  }
  static AOTI_DEBUG_FN uint32_t imaginary(Raw raw) { return static_cast<uint32_t>(raw >> Part::bytes * 8); }
  static AOTI_DEBUG_FN bool finite(Raw raw) { return Part::finite(real(raw)) && Part::finite(imaginary(raw)); }
  static AOTI_DEBUG_FN bool infinite(uint32_t part) {
    return !Part::finite(part) && Part::special(part) != Special::nan;
  }
  static AOTI_DEBUG_FN Special special(Raw raw) {
    return infinite(real(raw)) || infinite(imaginary(raw)) ? Special::pos_inf : Special::nan;
  }
  static AOTI_DEBUG_FN double number(Raw raw) {
    const double x = Part::number(real(raw)), y = Part::number(imaginary(raw));
    return square_root(x * x + y * y);
  }
};
using Complex32 = SmallComplex<Float16>;
using Complex64 = SmallComplex<Float32>;

// 2 to a power that a normal double can hold; 0 below that.
AOTI_DEBUG_FN double power_of_two(int exponent) {
  return exponent < -1022 ? 0.0 : bits_as<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

AOTI_DEBUG_FN int biased_exponent(double value) { return static_cast<int>(bits_as<uint64_t>(value) >> 52 & 0x7ff); }

struct Complex128 : ElementType<double, double, 16, true> {
  using Raw = Chunk;
  static AOTI_DEBUG_FN Raw raw(const Chunk& chunk, uint32_t) { return chunk; }
  static AOTI_DEBUG_FN bool infinite(uint64_t part) {
    return !Float64::finite(part) && Float64::special(part) != Special::nan;
  }
  static AOTI_DEBUG_FN bool finite(const Raw& raw) {
    return Float64::finite(raw.words[0]) && Float64::finite(raw.words[1]) &&
           Float64::finite(bits_as<uint64_t>(number(raw)));
  }
  static AOTI_DEBUG_FN Special special(const Raw& raw) {
    const bool is_nan = !Float64::finite(raw.words[0]) || !Float64::finite(raw.words[1]);
    return infinite(raw.words[0]) || infinite(raw.words[1]) || !is_nan ? Special::pos_inf : Special::nan;
  }
  // Parts are brought to about 1 before they are squared, so only a magnitude beyond double's range is infinite.
  static AOTI_DEBUG_FN double number(const Raw& raw) {
    const double real = Float64::number(raw.words[0]), imaginary = Float64::number(raw.words[1]);
    const int real_exponent = biased_exponent(real), imaginary_exponent = biased_exponent(imaginary);
    int exponent = real_exponent > imaginary_exponent ? real_exponent : imaginary_exponent;
    exponent = exponent < 64 ? 64 : exponent > 1982 ? 1982 : exponent;
    const double down = power_of_two(1023 - exponent), x = real * down, y = imaginary * down;
    return square_root(x * x + y * y) * power_of_two(exponent - 1023);
  }
};

// Elements whose bytes are hashed and shown and whose values are not looked at.
template <uint32_t kBytes>
struct Opaque : ElementType<uint64_t, uint64_t, kBytes> {
  static constexpr bool counted = false;
};
using Opaque1 = Opaque<1>;
using Opaque2 = Opaque<2>;
using Opaque4 = Opaque<4>;
using Opaque8 = Opaque<8>;
using Opaque16 = Opaque<16>;

// Every dtype with statistics: its type and its c10::ScalarType.
#define AOTI_DEBUG_ELEMENT_TYPES(_) \
  _(UInt8, 0)                       \
  _(Int8, 1)                        \
  _(Int16, 2)                       \
  _(Int32, 3)                       \
  _(Int64, 4)                       \
  _(Float16, 5)                     \
  _(Float32, 6)                     \
  _(Float64, 7)                     \
  _(Complex32, 8)                   \
  _(Complex64, 9)                   \
  _(Complex128, 10)                 \
  _(Bool, 11)                       \
  _(BFloat16, 15)                   \
  _(Float8e5m2, 23)                 \
  _(Float8e4m3fn, 24)               \
  _(Float8e5m2fnuz, 25)             \
  _(Float8e4m3fnuz, 26)             \
  _(UInt16, 27)                     \
  _(UInt32, 28)                     \
  _(UInt64, 29)                     \
  _(Float8e8m0, 44)

// Elements of any dtype by their size in bytes.
#define AOTI_DEBUG_OPAQUE_TYPES(_) _(Opaque1, 1) _(Opaque2, 2) _(Opaque4, 4) _(Opaque8, 8) _(Opaque16, 16)

}  // namespace aoti_debug::cuda
