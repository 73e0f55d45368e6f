// Text from numbers, independent of the locale; JSON strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aoti_debug {

void append_unsigned(std::string& text, uint64_t value);
void append_signed(std::string& text, int64_t value);

// `digits` significant decimal digits at most: "0.5", "1e+300", "nan", "inf".
void append_real(std::string& text, double value, int digits);

// `digits` lower-case hexadecimal digits, the most significant ones of 64 bits.
void append_hex(std::string& text, uint64_t value, int digits);

// A JSON string with its quotes. Bytes that are no valid text are kept as they are.
void append_json(std::string& text, std::string_view value);

}  // namespace aoti_debug
