#include "rounding.h"

#include <string.h>

#include <cmath>
#include <limits>

#include "dtype.h"
#include "elements.h"

namespace aoti_debug {
namespace {

constexpr int kMantissaBits = 23;  // of float32
constexpr uint32_t kSign = 0x80000000u;
constexpr int kFloatBias = 127;

// A dtype of at most 32 bits.
struct Format {
  int mantissa_bits;
  int least_exponent;  // of a number that is not subnormal
  float largest;
  bool has_infinity;
};

const Format* format_of(int32_t type) {
  static constexpr Format kSingle{kMantissaBits, -126, std::numeric_limits<float>::max(), true};
  static constexpr Format kBrain{7, -126, 3.38953139e38f, true}, kHalf{10, -14, 65504.0f, true};
  static constexpr Format kE5M2{2, -14, 57344.0f, true}, kE4M3FN{3, -6, 448.0f, false};
  switch (type) {
    case kFloat32:
      return &kSingle;
    case kBFloat16:
      return &kBrain;
    case kFloat16:
      return &kHalf;
    case kFloat8E5M2:
      return &kE5M2;
    case kFloat8E4M3FN:
      return &kE4M3FN;
    default:
      return nullptr;
  }
}

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

float rounded(float value, const Format& format) {
  if (std::isnan(value)) return value;
  if (std::isinf(value)) return format.has_infinity ? value : std::copysign(format.largest, value);
  const uint32_t bits = bits_of(value), sign = bits & kSign, size = bits & ~kSign;
  const int biased = static_cast<int>(size >> kMantissaBits);
  const int exponent = (biased == 0 ? 1 : biased) - kFloatBias;
  const int below = exponent < format.least_exponent ? format.least_exponent - exponent : 0;  // it becomes subnormal
  const int dropped = kMantissaBits - format.mantissa_bits + below;
  uint32_t nearest = size;
  if (dropped > kMantissaBits + 1 || (dropped == kMantissaBits + 1 && (size & ((1u << kMantissaBits) - 1)) == 0)) {
    nearest = 0;  // at most half of the smallest number
  } else if (dropped == kMantissaBits + 1) {
    nearest = static_cast<uint32_t>(biased + 1) << kMantissaBits;  // the smallest number
  } else if (dropped > 0) {
    const uint32_t odd = dropped == kMantissaBits ? 1u : (size >> dropped) & 1u;  // of the last bit that stays
    nearest = (size + (1u << (dropped - 1)) - 1 + odd) & ~((1u << dropped) - 1);
  }
  const float result = float_of(nearest);
  if (result <= format.largest) return float_of(nearest | sign);
  const float beyond = format.has_infinity ? std::numeric_limits<float>::infinity() : format.largest;
  return float_of(bits_of(beyond) | sign);
}

// The bits of a number that float16 has.
uint16_t half_bits(float value) {
  constexpr int kHalfMantissaBits = 10, kHalfBias = 15;
  constexpr float kSmallest = 5.9604644775390625e-08f, kLeastNormal = 6.103515625e-05f;
  const uint32_t bits = bits_of(value);
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | 0x7c00);
  if (size < kLeastNormal) return static_cast<uint16_t>(sign | static_cast<uint16_t>(size / kSmallest));
  const uint32_t rest = (bits & ~kSign) - (static_cast<uint32_t>(kFloatBias - kHalfBias) << kMantissaBits);
  return static_cast<uint16_t>(sign | (rest >> (kMantissaBits - kHalfMantissaBits)));
}

template <class T>
void round_wide(const Format& format, uint8_t* elements, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    memcpy(&value, elements + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    value = static_cast<T>(rounded(static_cast<float>(value), format));
    memcpy(elements + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace

bool can_round(int32_t from, int32_t to) {
  const bool is_from = from == kFloat64 || from == kFloat32 || from == kBFloat16 || from == kFloat16;
  return is_from && format_of(to) != nullptr;
}

void round_elements(int32_t from, int32_t to, uint8_t* elements, int64_t count) {
  if (!can_round(from, to)) return;
  const Format &format = *format_of(to), &own = *format_of(from == kFloat64 ? kFloat32 : from);
  if (from == kFloat64) return round_wide<double>(format, elements, count);
  if (from == kFloat32) return round_wide<float>(format, elements, count);
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* const element = elements + 2 * i;
    float value;
    (from == kFloat16 ? convert_float16 : convert_bfloat16)(element, 1, &value);
    const float result = rounded(rounded(value, format), own);
    const uint16_t bits = from == kFloat16 ? half_bits(result) : static_cast<uint16_t>(bits_of(result) >> 16);
    memcpy(element, &bits, sizeof(bits));
  }
}

}  // namespace aoti_debug
