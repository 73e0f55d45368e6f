#include "filter.h"

#include <fnmatch.h>
#include <strings.h>

namespace aoti_debug {
namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

}  // namespace

Filter Filter::patterns(std::string_view list) {
  Filter filter;
  filter.words_ = split(list);
  return filter;
}

Filter Filter::names(std::string_view list) {
  Filter filter;
  filter.words_ = split(list);
  filter.exact_ = true;
  return filter;
}

bool Filter::matches(const char* kernel) const {
  bool included = false;
  bool has_includes = false;
  for (const std::string& word : words_) {
    if (exact_) {
      has_includes = true;
      included |= strcasecmp(word.c_str(), kernel) == 0;
    } else if (word[0] == '!') {
      if (fnmatch(word.c_str() + 1, kernel, 0) == 0) return false;
    } else {
      has_includes = true;
      included |= fnmatch(word.c_str(), kernel, 0) == 0;
    }
  }
  return included || !has_includes;
}

}  // namespace aoti_debug
