// The text of levels 2 and 3, at most 80 columns wide. Every function appends whole lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aoti_debug.h"
#include "formats/journal_format.h"
#include "journal/launch_id.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

// What begins each line: "0.3 ", or "0.3 [4711] " where several threads run the package.
class LinePrefix {
 public:
  // `thread` is 0 where there is one thread only.
  LinePrefix(const LaunchId& id, uint32_t thread);
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[48];
  size_t size_;
};

// Iterations of the while loops around a launch, outermost first.
struct LoopCounts {
  const uint32_t* counts;
  uint32_t n;
};

// "0.3 before triton_poi_fused_0", "0.3 after  cpp_fused_add_1 iteration 2".
void print_launch(std::string& text, const LinePrefix& prefix, Phase phase, const char* kernel, LoopCounts loops);

// A tensor's name, role, dtype, shape, statistics, and its values where there are few.
void print_tensor(std::string& text, const LinePrefix& prefix, const AotiDebugSlot& slot, const TensorMeta& meta,
                  const TensorStats& stats, const uint8_t* values);

// A tensor whose elements were not read.
void print_unread(std::string& text, const LinePrefix& prefix, const AotiDebugSlot& slot, const TensorMeta& meta,
                  std::string_view why);

void print_fault(std::string& text, const LinePrefix& prefix, const char* kernel, std::string_view what);

}  // namespace aoti_debug
