#include "substitutions.h"

#include <string.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "configuration.h"
#include "machine/file.h"

namespace aoti_debug {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::optional<uint64_t> number(const std::string& text) {
  uint64_t value = 0;
  if (!parse_bytes(text.c_str(), &value)) return std::nullopt;
  return value;
}

std::optional<Replacement> replacement(const std::vector<std::string>& fields) {
  Replacement found{fields[2], 0, {}, 0, fields[6]};
  const std::optional<uint64_t> dtype = number(fields[3]), offset = number(fields[5]);
  if (!dtype || !offset) return std::nullopt;
  found.dtype = static_cast<int32_t>(*dtype);
  found.offset = *offset;
  if (fields[4] == "-") return found;
  for (const std::string& size : split(fields[4], ',')) {
    const std::optional<uint64_t> value = number(size);
    if (!value) return std::nullopt;
    found.sizes.push_back(static_cast<int64_t>(*value));
  }
  return found;
}

std::optional<Rounding> rounding(const std::vector<std::string>& fields) {
  const std::optional<uint64_t> dtype = number(fields[3]);
  if (!dtype || (fields[4] != "before" && fields[4] != "after")) return std::nullopt;
  return Rounding{fields[2], static_cast<int32_t>(*dtype), fields[4] == "after"};
}

}  // namespace

std::string Substitutions::read(const std::string& path) {
  std::string text;
  if (const int error = read_file(path, &text); error != 0) return path + ": " + strerror(error);
  uint32_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (!line.empty() && !take(split(line, '\t'))) {
      by_launch_.clear();
      return path + ", line " + std::to_string(number) + ": this is no instruction";
    }
  }
  return "";
}

bool Substitutions::take(const std::vector<std::string>& fields) {
  LaunchChoice choice;
  if (fields.size() < 2 || !parse_launch(fields[1].c_str(), &choice)) return false;
  Substitution& substitution = at({choice.call, choice.launch, choice.kind});
  const std::string& what = fields[0];
  if (what == "skip" && fields.size() == 2) {
    substitution.skips = true;
  } else if (what == "stop" && fields.size() == 2) {
    substitution.stops = true;
  } else if (what == "wait" && fields.size() == 3) {
    substitution.wait_file = fields[2];
  } else if (what == "value" && fields.size() == 7) {
    std::optional<Replacement> found = replacement(fields);
    if (!found) return false;
    substitution.replacements.push_back(std::move(*found));
  } else if (what == "round" && fields.size() == 5) {
    std::optional<Rounding> found = rounding(fields);
    if (!found) return false;
    substitution.roundings.push_back(std::move(*found));
    rounds_ = true;
  } else {
    return false;
  }
  return true;
}

Substitution& Substitutions::at(const LaunchId& id) {
  Substitution& found = by_launch_[id.name()];
  found.id = id;
  return found;
}

Substitution* Substitutions::find(const LaunchId& id) {
  const auto found = by_launch_.find(id.name());
  return found == by_launch_.end() ? nullptr : &found->second;
}

std::string Substitutions::summary() const {
  const uint32_t n_replaced = replaced.load(), n_skipped = skipped.load();
  std::string text =
      "results replaced: " + std::to_string(n_replaced) + ", launches skipped: " + std::to_string(n_skipped);
  if (rounds_) {
    const std::string rounds = "tensors rounded: " + std::to_string(rounded.load());
    text = n_replaced + n_skipped == 0 ? rounds : text + ", " + rounds;
  }
  const char* before = "; not reached: ";
  for (const auto& [name, substitution] : by_launch_) {
    if (substitution.reached.load()) continue;
    text += before + name;
    before = ", ";
  }
  return text;
}

}  // namespace aoti_debug
