#include "elements.h"

#include <string.h>

#include <array>
#include <cmath>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "dtype.h"

namespace aoti_debug {
namespace {

constexpr double kInfinity = __builtin_huge_val();
constexpr double kNaN = __builtin_nan("");

constexpr double power_of_two(int exponent) {
  double value = 1;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

constexpr double small_float(uint32_t byte, int mantissa_bits, int bias) {
  const uint32_t mantissa = byte & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((byte & 0x7f) >> mantissa_bits);
  const double fraction = static_cast<double>(mantissa) * power_of_two(-mantissa_bits);
  const double value =
      exponent == 0 ? fraction * power_of_two(1 - bias) : (1 + fraction) * power_of_two(exponent - bias);
  return (byte & 0x80) != 0 ? -value : value;
}

constexpr double value_of(Float8 format, uint32_t byte) {
  switch (format) {
    case Float8::kE5M2:
      if ((byte & 0x7f) > 0x7c) return kNaN;
      if ((byte & 0x7f) == 0x7c) return (byte & 0x80) != 0 ? -kInfinity : kInfinity;
      return small_float(byte, 2, 15);
    case Float8::kE4M3FN:
      return (byte & 0x7f) == 0x7f ? kNaN : small_float(byte, 3, 7);
    case Float8::kE5M2FNUZ:
      return byte == 0x80 ? kNaN : small_float(byte, 2, 16);
    case Float8::kE4M3FNUZ:
      return byte == 0x80 ? kNaN : small_float(byte, 3, 8);
    case Float8::kE8M0FNU:
      return byte == 0xff ? kNaN : power_of_two(static_cast<int>(byte) - 127);
  }
  return kNaN;
}

using Table = std::array<float, 256>;

constexpr Table table_of(Float8 format) {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) table[byte] = static_cast<float>(value_of(format, byte));
  return table;
}

constexpr Table kTables[] = {table_of(Float8::kE5M2), table_of(Float8::kE4M3FN), table_of(Float8::kE5M2FNUZ),
                             table_of(Float8::kE4M3FNUZ), table_of(Float8::kE8M0FNU)};

template <class T>
T load(const uint8_t* from, int64_t index) {
  T value;
  memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  const uint32_t normal = (rest << 13) + ((127 - 15) << 23);
  const uint32_t special = (rest << 13) | 0x7f800000u;
  // A subnormal is its mantissa times 2^-24: 0.5 with the mantissa in its lowest bits, less 0.5, is that exactly.
  const float subnormal = float_of_bits(0x3f000000u | rest) - 0.5f;
  uint32_t subnormal_bits;
  memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
  const uint32_t magnitude = rest >= 0x7c00 ? special : rest < 0x400 ? subnormal_bits : normal;
  return float_of_bits(sign | magnitude);
}

float float_of_bfloat(uint16_t bfloat) { return float_of_bits(static_cast<uint32_t>(bfloat) << 16); }

double magnitude(double real, double imaginary) {
  const double value = std::sqrt(real * real + imaginary * imaginary);
  return value == value ? value : std::hypot(real, imaginary);
}

}  // namespace

const float* float8_values(Float8 format) { return kTables[static_cast<size_t>(format)].data(); }

void convert_float8(const uint8_t* from, int64_t count, const float* values, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = values[from[i]];
}

void convert_float16(const uint8_t* from, int64_t count, float* to) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  }
#endif
  for (; i < count; ++i) to[i] = float_of_half(load<uint16_t>(from, i));
}

void convert_bfloat16(const uint8_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_of_bfloat(load<uint16_t>(from, i));
}

void convert_complex32(const uint8_t* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = magnitude(float_of_half(load<uint16_t>(from, 2 * i)), float_of_half(load<uint16_t>(from, 2 * i + 1)));
  }
}

void convert_bcomplex32(const uint8_t* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = magnitude(float_of_bfloat(load<uint16_t>(from, 2 * i)), float_of_bfloat(load<uint16_t>(from, 2 * i + 1)));
  }
}

void convert_complex64(const uint8_t* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = magnitude(load<float>(from, 2 * i), load<float>(from, 2 * i + 1));
}

void convert_complex128(const uint8_t* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::hypot(load<double>(from, 2 * i), load<double>(from, 2 * i + 1));
}

void convert_bool(const uint8_t* from, int64_t count, int32_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] != 0;
}

double element_value(int32_t scalar_type, const uint8_t* bytes) {
  float narrow = 0;
  double wide = 0;
  switch (scalar_type) {
    case kUInt8:
      return bytes[0];
    case kInt8:
      return load<int8_t>(bytes, 0);
    case kInt16:
      return load<int16_t>(bytes, 0);
    case kUInt16:
      return load<uint16_t>(bytes, 0);
    case kInt32:
      return load<int32_t>(bytes, 0);
    case kUInt32:
      return load<uint32_t>(bytes, 0);
    case kInt64:
      return static_cast<double>(load<int64_t>(bytes, 0));
    case kUInt64:
      return static_cast<double>(load<uint64_t>(bytes, 0));
    case kBoolean:
      return bytes[0] != 0;
    case kFloat32:
      return load<float>(bytes, 0);
    case kFloat64:
      return load<double>(bytes, 0);
    case kFloat16:
      convert_float16(bytes, 1, &narrow);
      return narrow;
    case kBFloat16:
      convert_bfloat16(bytes, 1, &narrow);
      return narrow;
    case kFloat8E5M2:
      return float8_values(Float8::kE5M2)[bytes[0]];
    case kFloat8E4M3FN:
      return float8_values(Float8::kE4M3FN)[bytes[0]];
    case kFloat8E5M2FNUZ:
      return float8_values(Float8::kE5M2FNUZ)[bytes[0]];
    case kFloat8E4M3FNUZ:
      return float8_values(Float8::kE4M3FNUZ)[bytes[0]];
    case kFloat8E8M0FNU:
      return float8_values(Float8::kE8M0FNU)[bytes[0]];
    case kComplex32:
      convert_complex32(bytes, 1, &wide);
      return wide;
    case kBComplex32:
      convert_bcomplex32(bytes, 1, &wide);
      return wide;
    case kComplex64:
      convert_complex64(bytes, 1, &wide);
      return wide;
    case kComplex128:
      convert_complex128(bytes, 1, &wide);
      return wide;
    default:
      return 0;
  }
}

}  // namespace aoti_debug
