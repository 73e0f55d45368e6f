#include "watchpoints.h"

#include <fnmatch.h>

#include <set>
#include <utility>

#include "tensors/readable.h"

namespace aoti_debug {
namespace {

bool is_read_only(const AotiDebugSlot& slot) { return slot.role == AOTI_DEBUG_ROLE_IN; }

// The names of everything that some launch writes.
std::set<std::string_view> written_names(const AotiDebugPackage& package) {
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < package.n_sites; ++i) {
    const AotiDebugSite& site = package.sites[i];
    for (uint32_t s = 0; s < site.n_slots; ++s) {
      if (is_tensor_form(site.slots[s].form) && !is_read_only(site.slots[s])) names.insert(site.slots[s].name);
    }
  }
  return names;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool Watchpoint::matches(const char* kernel, const char* argument) const {
  return fnmatch(pattern.c_str(), argument, 0) == 0 || fnmatch(pattern.c_str(), kernel, 0) == 0;
}

std::optional<Watchpoint> parse_watchpoint(std::string_view text, std::string* error, size_t* at) {
  const size_t colon = text.rfind(':');  // names of operators contain colons, conditions do not
  if (colon == std::string_view::npos) {
    *error = "a colon is missing between the name and the condition";
    *at = text.size();
    return std::nullopt;
  }
  const std::string_view pattern = without_blanks(text.substr(0, colon));
  if (pattern.empty()) {
    *error = "the name of an argument or a kernel is missing";
    *at = 0;
    return std::nullopt;
  }
  std::optional<Condition> condition = Condition::parse(text.substr(colon + 1), error, at);
  if (!condition) {
    *at += colon + 1;
    return std::nullopt;
  }
  return Watchpoint{std::string(without_blanks(text)), std::string(pattern), std::move(*condition)};
}

std::optional<uint32_t> parse_watch_actions(std::string_view words) {
  uint32_t actions = 0;
  for (size_t start = 0; start <= words.size();) {
    const size_t end = std::min(words.find(',', start), words.size());
    const std::string_view word = without_blanks(words.substr(start, end - start));
    if (word == "save") {
      actions |= WATCH_SAVE;
    } else if (word == "stack") {
      actions |= WATCH_STACK;
    } else if (word == "stop") {
      actions |= WATCH_STOP;
    } else if (word == "count") {
      actions |= WATCH_TALLY;
    } else {
      return std::nullopt;
    }
    start = end + 1;
  }
  return actions;
}

Watchpoints::Watchpoints(std::vector<Watchpoint> watchpoints, uint32_t actions, const AotiDebugPackage& package,
                         bool before, bool after)
    : watchpoints_(std::move(watchpoints)),
      actions_(actions),
      sites_(package.n_sites),
      counts_(new Count[watchpoints_.size()]) {
  const std::set<std::string_view> written = written_names(package);
  for (uint32_t i = 0; i < package.n_sites; ++i) {
    const AotiDebugSite& site = package.sites[i];
    for (uint32_t s = 0; s < site.n_slots; ++s) {
      const AotiDebugSlot& slot = site.slots[s];
      if (!is_tensor_form(slot.form) || is_repeated(site, s)) continue;
      WatchedSlot watched{static_cast<uint16_t>(s), before && has_data_before(slot), after, {}};
      if (!before && !after) {
        watched.after = !is_read_only(slot);
        watched.before = is_read_only(slot) && written.count(slot.name) == 0;
      }
      if (!watched.before && !watched.after) continue;
      for (uint32_t w = 0; w < watchpoints_.size(); ++w) {
        if (watchpoints_[w].matches(site.kernel, slot.name)) watched.watches.push_back(w);
      }
      if (!watched.watches.empty()) sites_[i].push_back(std::move(watched));
    }
  }
}

WatchCount Watchpoints::count(uint32_t watch) const {
  return {watch, counts_[watch].unread.load(), counts_[watch].hits.load(), counts_[watch].evaluated.load()};
}

}  // namespace aoti_debug
