#include "results_home.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <string_view>
#include <vector>

#include "machine/file.h"

namespace aoti_debug {
namespace {

constexpr char kMarker[] = "/.aoti-debug";
constexpr std::string_view kText =
    "This directory was made by aoti-debug. `aoti-debug list` says what is in it, `aoti-debug clean` deletes it.\n";

bool is_home(const std::string& path) {
  struct stat found;
  return stat((path + kMarker).c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

// Whether there is nothing, or an empty directory.
bool is_free(const std::string& path) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) {
    struct stat found;
    return errno == ENOENT && lstat(path.c_str(), &found) != 0;
  }
  int entries = 0;
  while (entries <= 2 && readdir(directory) != nullptr) ++entries;  // "." and ".."
  closedir(directory);
  return entries <= 2;
}

// The directory that may be the home; "" if each of them is something else, which `taken` names.
std::string choose(const std::string& named, std::string* taken) {
  if (named.empty() && is_home(".")) return ".";
  const std::vector<std::string> defaults = {"aoti-debug", "aoti-debug-results"};
  for (const std::string& path : named.empty() ? defaults : std::vector<std::string>{named}) {
    if (is_home(path) || is_free(path)) return path;
    *taken = path;
  }
  return "";
}

int write_new(const std::string& path, std::string_view text) {
  File file;
  const int error = create_file(path, &file);
  if (error != 0) return error == EEXIST ? 0 : error;  // another process made it
  return write_at(file, text.data(), text.size(), 0);
}

}  // namespace

int make_runs_folder(const std::string& named, std::string* path) {
  const std::string home = choose(named, path);
  if (home.empty()) return ENOTEMPTY;
  *path = home;
  if (const int error = make_directories(home)) return error;
  *path = home + kMarker;
  if (const int error = write_new(*path, kText)) return error;
  *path = home + "/.gitignore";
  if (const int error = write_new(*path, "*\n")) return error;
  *path = home + "/runs";
  return make_directories(*path);
}

}  // namespace aoti_debug
