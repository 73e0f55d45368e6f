// Which kernels, modules and model lines are printed, measured and saved.
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

  // Of module paths, a line each: a pattern takes a module with all that it contains.
  bool matches_module(const char* paths) const;

  // Of places "/home/u/model.py:23", a line each: a pattern may leave out leading directories.
  bool matches_line(const char* places) const;

  const std::vector<std::string>& words() const { return words_; }

 private:
  template <class Matches>
  bool passes(const Matches& matches) const;

  std::vector<std::string> words_;
  bool exact_ = false;
};

}  // namespace aoti_debug
