// Which kernels are printed, measured and saved.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aoti_debug {

class Filter {
 public:
  // Comma-separated fnmatch patterns; `!` excludes. Only excludes: everything else is in.
  static Filter patterns(std::string_view list);

  // Comma-separated names, compared without regard to case (the built-in printer's filter).
  static Filter names(std::string_view list);

  bool matches(const char* kernel) const;

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
  bool exact_ = false;
};

}  // namespace aoti_debug
