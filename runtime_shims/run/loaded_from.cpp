#include "loaded_from.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <vector>

#include "machine/file.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

constexpr size_t kMaxPackages = 16;
constexpr int kMaxFiles = 4096;  // open ones that are looked at
constexpr std::string_view kSuffix = ".pt2";
constexpr std::string_view kDeleted = " (deleted)";  // ends the name of an open file that has no other any more

struct LoadedFrom {
  std::string library;
  std::vector<std::string> packages;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_package(std::string_view path) { return ends_with(path, kSuffix); }

void add(std::vector<std::string>* packages, const std::string& path) {
  const bool is_known = std::find(packages->begin(), packages->end(), path) != packages->end();
  if (!is_known && packages->size() < kMaxPackages) packages->push_back(path);
}

void add_open_files(std::vector<std::string>* packages) {
  DIR* files = opendir("/proc/self/fd");
  if (files == nullptr) return;
  int count = 0;
  for (const dirent* entry = readdir(files); entry != nullptr && ++count < kMaxFiles; entry = readdir(files)) {
    char target[PATH_MAX];
    const ssize_t length = readlinkat(dirfd(files), entry->d_name, target, sizeof(target));
    if (length <= 0 || length == sizeof(target)) continue;
    std::string path(target, static_cast<size_t>(length));
    if (ends_with(path, kDeleted)) path.resize(path.size() - kDeleted.size());  // a copy may lie there again
    if (path.front() == '/' && is_package(path)) add(packages, path);
  }
  closedir(files);
}

// The words of the command line, "model.pt2" and "--model=model.pt2", that name a file which is there.
void add_named_files(std::vector<std::string>* packages) {
  std::string words;
  read_file("/proc/self/cmdline", &words);
  for (size_t start = 0; start < words.size();) {
    const size_t end = std::min(words.find('\0', start), words.size());
    const std::string word = words.substr(start, end - start);
    start = end + 1;
    if (!is_package(word)) continue;
    for (const size_t begin : {size_t{0}, word.find('=') + 1}) {
      const std::string path = absolute(word.substr(begin));
      if (access(path.c_str(), F_OK) == 0) add(packages, path);
    }
  }
}

LoadedFrom look() noexcept {
  LoadedFrom found;
  try {
    const char* run = getenv("AOTI_DEBUG_RUN");
    if (run != nullptr && run[0] != '\0') return found;
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&look), &info) != 0 && info.dli_fname != nullptr) {
      found.library = absolute(info.dli_fname);
    }
    add_open_files(&found.packages);
    add_named_files(&found.packages);
  } catch (const std::exception&) {  // no memory: the model loads, and whoever reads the run searches for the package
    found = LoadedFrom();
  }
  return found;
}

const LoadedFrom g_loaded_from = look();  // while the library is loaded: a loader may close the package afterwards

}  // namespace

std::string loaded_from_json() {
  const LoadedFrom& from = g_loaded_from;
  if (from.library.empty() && from.packages.empty()) return "";
  std::string json = ", \"loaded_from\": {\"library\": ";
  append_json(json, from.library);
  json += ", \"packages\": [";
  for (const std::string& path : from.packages) {
    if (json.back() != '[') json += ", ";
    append_json(json, path);
  }
  return json + "]}";
}

}  // namespace aoti_debug
