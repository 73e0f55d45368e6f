#include "element_text.h"

#include <string.h>

#include <cmath>

#include "number_text.h"
#include "tensors/dtype.h"
#include "tensors/elements.h"

namespace aoti_debug {
namespace {

constexpr int kDigits = 6;
constexpr int kDoubleDigits = 12;

template <class T>
T load(const uint8_t* bytes) {
  T value;
  memcpy(&value, bytes, sizeof(value));
  return value;
}

double half(const uint8_t* bytes) {
  float value;
  convert_float16(bytes, 1, &value);
  return value;
}

void append_complex(std::string& text, double real, double imaginary, int digits) {
  append_real(text, real, digits);
  if (!std::signbit(imaginary)) text += '+';
  append_real(text, imaginary, digits);
  text += 'j';
}

void append_float8(std::string& text, Float8 format, uint8_t byte) {
  append_real(text, float8_values(format)[byte], kDigits);
}

}  // namespace

void append_element(std::string& text, int32_t scalar_type, const uint8_t* bytes) {
  switch (scalar_type) {
    case kUInt8:
      return append_unsigned(text, bytes[0]);
    case kInt8:
      return append_signed(text, load<int8_t>(bytes));
    case kInt16:
      return append_signed(text, load<int16_t>(bytes));
    case kInt32:
      return append_signed(text, load<int32_t>(bytes));
    case kInt64:
      return append_signed(text, load<int64_t>(bytes));
    case kUInt16:
      return append_unsigned(text, load<uint16_t>(bytes));
    case kUInt32:
      return append_unsigned(text, load<uint32_t>(bytes));
    case kUInt64:
      return append_unsigned(text, load<uint64_t>(bytes));
    case kBoolean:
      text += bytes[0] != 0 ? "True" : "False";
      return;
    case kFloat16:
      return append_real(text, half(bytes), kDigits);
    case kBFloat16: {
      float value;
      convert_bfloat16(bytes, 1, &value);
      return append_real(text, value, kDigits);
    }
    case kFloat32:
      return append_real(text, load<float>(bytes), kDigits);
    case kFloat64:
      return append_real(text, load<double>(bytes), kDoubleDigits);
    case kComplex32:
      return append_complex(text, half(bytes), half(bytes + 2), kDigits);
    case kComplex64:
      return append_complex(text, load<float>(bytes), load<float>(bytes + 4), kDigits);
    case kComplex128:
      return append_complex(text, load<double>(bytes), load<double>(bytes + 8), kDoubleDigits);
    case kFloat8E5M2:
      return append_float8(text, Float8::kE5M2, bytes[0]);
    case kFloat8E4M3FN:
      return append_float8(text, Float8::kE4M3FN, bytes[0]);
    case kFloat8E5M2FNUZ:
      return append_float8(text, Float8::kE5M2FNUZ, bytes[0]);
    case kFloat8E4M3FNUZ:
      return append_float8(text, Float8::kE4M3FNUZ, bytes[0]);
    case kFloat8E8M0FNU:
      return append_float8(text, Float8::kE8M0FNU, bytes[0]);
    default:
      text += '?';
  }
}

}  // namespace aoti_debug
