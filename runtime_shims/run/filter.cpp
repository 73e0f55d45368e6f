#include "filter.h"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>

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

// Whether `matches` holds for one of the lines of a text.
template <class Matches>
bool any_line(const char* text, const Matches& matches) {
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (matches(std::string(rest.substr(0, end)))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
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
  return passes([this, kernel](const char* word) {
    return exact_ ? strcasecmp(word, kernel) == 0 : fnmatch(word, kernel, 0) == 0;
  });
}

bool Filter::matches_module(const char* paths) const {
  return passes([paths](const char* word) {
    return any_line(paths, [word](const std::string& path) {
      for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
        if (fnmatch(word, path.substr(0, end).c_str(), 0) == 0) return true;
        if (end == std::string::npos) return false;
      }
    });
  });
}

bool Filter::matches_line(const char* places) const {
  return passes([places](const char* word) {
    return any_line(places, [word](const std::string& place) {
      for (size_t start = 0;; ++start) {
        if (fnmatch(word, place.c_str() + start, 0) == 0) return true;
        start = place.find('/', start);
        if (start == std::string::npos) return false;
      }
    });
  });
}

template <class Matches>
bool Filter::passes(const Matches& matches) const {
  bool included = false;
  bool has_includes = false;
  for (const std::string& word : words_) {
    if (word[0] == '!' && !exact_) {
      if (matches(word.c_str() + 1)) return false;
    } else {
      has_includes = true;
      included = included || matches(word.c_str());
    }
  }
  return included || !has_includes;
}

}  // namespace aoti_debug
