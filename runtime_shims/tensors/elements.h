// Converts elements of every dtype to numbers that compare: float, double or int32.
#pragma once

#include <cstdint>

namespace aoti_debug {

// Formats of a byte: each has a table of its 256 values.
enum class Float8 : uint8_t { kE5M2, kE4M3FN, kE5M2FNUZ, kE4M3FNUZ, kE8M0FNU };
const float* float8_values(Float8 format);

void convert_float8(const uint8_t* from, int64_t count, const float* values, float* to);
void convert_float16(const uint8_t* from, int64_t count, float* to);
void convert_bfloat16(const uint8_t* from, int64_t count, float* to);

// Magnitudes. An infinite part makes an element infinite, whatever the other part is.
void convert_complex32(const uint8_t* from, int64_t count, double* to);
void convert_bcomplex32(const uint8_t* from, int64_t count, double* to);
void convert_complex64(const uint8_t* from, int64_t count, double* to);
void convert_complex128(const uint8_t* from, int64_t count, double* to);

// The bytes of a bool: 0 is false, every other is true.
void convert_bool(const uint8_t* from, int64_t count, int32_t* to);

// One element of any dtype with values: the number, or the magnitude of a complex one. 0 of other dtypes.
double element_value(int32_t scalar_type, const uint8_t* bytes);

}  // namespace aoti_debug
