// Rounds elements to the numbers of a narrower floating dtype, in place: what a cast to it and back would leave.
#pragma once

#include <cstdint>

namespace aoti_debug {

// Whether numbers of dtype `from` can be rounded to those of dtype `to`.
bool can_round(int32_t from, int32_t to);

// Rounds `count` elements of dtype `from`, without gaps, to the nearest numbers of dtype `to`, ties to even; beyond its
// largest number they become infinite, or that number where it has no infinity. They stay elements of dtype `from`.
void round_elements(int32_t from, int32_t to, uint8_t* elements, int64_t count);

}  // namespace aoti_debug
