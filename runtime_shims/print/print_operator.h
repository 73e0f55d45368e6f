// What `aoti_debug::print_` is lowered to.
#pragma once

namespace aoti_debug {

// Returns once everything that models have printed is there.
void drain_prints();

// In the child of a fork: what waits to be printed is the parent's.
void forget_prints();

}  // namespace aoti_debug
