// Numbers as Python's str and format write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aoti_debug {

// repr of a float: the shortest text that is this number.
std::string python_float(double value);

// str of a complex number: "(1+2j)", "2j".
std::string python_complex(double real, double imaginary);

// A fixed number of digits: `format` is 'f', 'e' or 'g'.
std::string python_digits(double value, char format, int precision);

// format(value, spec) of a float; `spec` has a width, an alignment, a precision and a type of f, F, e, E, g, G and %.
std::string format_python_float(double value, std::string_view spec);

// format(value, spec) of an int whose digits are `text`; `value` is what it is as a float.
std::string format_python_int(const std::string& text, double value, std::string_view spec);

}  // namespace aoti_debug
