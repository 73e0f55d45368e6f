// One element of a tensor as text.
#pragma once

#include <cstdint>
#include <string>

namespace aoti_debug {

// Appends the element at `bytes`: exact integers, floats with up to 6 digits (double: 12), complex as 1+2j.
void append_element(std::string& text, int32_t scalar_type, const uint8_t* bytes);

}  // namespace aoti_debug
