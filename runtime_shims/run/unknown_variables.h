// Environment variables that look like those of the tool and are none: a misspelt one would do nothing, silently.
#pragma once

#include <string>
#include <vector>

namespace aoti_debug {

// A line for each of them, with the most similar name that there is.
std::vector<std::string> unknown_variables();

}  // namespace aoti_debug
