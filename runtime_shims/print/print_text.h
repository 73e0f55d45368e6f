// The text of a print: literal words, with the values that are known at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tensor_text.h"

namespace aoti_debug {

// `text` has fields {t0}, {t0!r}, {t0:.3f} for tensors and {i0}, {i0:5d} for integers, by number, and
// {x22} for bytes; {{ and }} stand for braces (aoti_debug/package/printing/template.py). A field without a value stays
// as it is.
std::string print_text(std::string_view text, const std::vector<PrintedTensor>& tensors,
                       const std::vector<int64_t>& integers);

}  // namespace aoti_debug
