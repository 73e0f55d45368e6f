#include "rank.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "machine/file.h"
#include "run_directory.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

constexpr int kMaxLaunches = 10000;
constexpr int kMaxAncestors = 32;

// "" where it cannot be read.
std::string content_of(const std::string& path) {
  std::string text;
  return read_file(path, &text) == 0 ? text : "";
}

// Parent and start time, in ticks since the machine was started. False where there is no such process.
bool read_process(pid_t pid, pid_t* parent, std::string* start) {
  const std::string text = content_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return false;
  int ppid = 0;
  char state = 0;
  unsigned long long ticks = 0;
  const char* format = " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (sscanf(text.c_str() + end_of_name + 1, format, &state, &ppid, &ticks) != 3) return false;
  if (state == 'Z' || state == 'X') return false;
  *parent = ppid;
  *start = std::to_string(ticks);
  return true;
}

// A process as PID-START, which no other process of this machine has had since it was started.
std::string identity(pid_t pid) {
  pid_t parent = 0;
  std::string start;
  return read_process(pid, &parent, &start) ? std::to_string(pid) + "-" + start : "";
}

bool is_rank_itself(pid_t pid) {
  const std::string environment = '\0' + content_of("/proc/" + std::to_string(pid) + "/environ");
  return environment.find(std::string_view("\0RANK=", 6)) != std::string::npos;
}

// The process that started the ranks of this machine: the closest ancestor that is no rank itself. "unknown" where that
// is outside of this container.
std::string launcher() {
  pid_t pid = getpid();
  std::string start;
  for (int i = 0; i < kMaxAncestors && read_process(pid, &pid, &start) && pid > 1; ++i) {
    if (!is_rank_itself(pid)) break;
  }
  const std::string found = identity(pid);
  return found.empty() ? "unknown" : found;
}

// FNV-1a in hexadecimal.
std::string hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  snprintf(digits, sizeof(digits), "%016" PRIx64, hash);
  return digits;
}

// What all ranks of a launch know of it, and no other launch of this machine has. Ranks of several machines have no
// process in common.
std::string launch_key(const Rank& rank, const std::string& started_by) {
  const bool is_on_one_machine = rank.local_world_size == 0 || rank.local_world_size >= rank.world_size;
  const std::string where = is_on_one_machine ? machine_name() + "\n" + started_by : rank.master;
  return hash_of(where + "\n" + rank.run_id + "\n" + rank.restart + "\n" + std::to_string(rank.world_size));
}

std::string link_target(const std::string& link) {
  char target[PATH_MAX];
  const ssize_t bytes = readlink(link.c_str(), target, sizeof(target));
  return bytes > 0 ? std::string(target, static_cast<size_t>(bytes)) : "";
}

// A directory beside the link to it, not one that an untrusted link leads to elsewhere.
bool is_beside(const std::string& target) {
  return target.find('/') == std::string::npos && target != "." && target != "..";
}

bool is_directory(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

int describe_launch(const std::string& path, const Rank& rank) {
  std::string json = "{\"format\": 1, \"world_size\": " + std::to_string(rank.world_size) + ", \"run_id\": ";
  append_json(json, rank.run_id);
  json += ", \"restart\": ";
  append_json(json, rank.restart);
  json += ", \"started\": \"" + started_now() + "\"}\n";
  return replace_file(path + "/ranks.json", json);
}

// The directory of a launch, which goes again unless a link leads to it.
struct NewLaunch {
  explicit NewLaunch(const std::string& path) { snprintf(json, sizeof(json), "%s/ranks.json", path.c_str()); }
  ~NewLaunch() {
    if (is_linked) return;
    unlink(json);
    *strrchr(json, '/') = '\0';
    rmdir(json);
  }
  NewLaunch(const NewLaunch&) = delete;

  char json[PATH_MAX];
  bool is_linked = false;
};

// Makes a directory and the link to it. EEXIST where another rank has made the link first.
int make_launch(const std::string& base, const std::string& link, const Rank& rank, std::string* path) {
  if (const int error = make_stamped_directory(base, path)) return error;
  NewLaunch made(*path);
  const std::string name = path->substr(base.size() + 1);
  if (const int error = describe_launch(*path, rank)) return error;
  if (symlink(name.c_str(), link.c_str()) != 0) return errno;
  made.is_linked = true;
  link_latest(base, name);
  return 0;
}

// Whether the ranks of this machine were started by this process in that launch; marks an unmarked launch.
bool belongs_to(const std::string& launch, const std::string& started_by) {
  std::string name = machine_name();
  for (char& c : name) c = c == '/' ? '_' : c;
  const std::string mark = launch + "/.node-" + name;
  if (symlink(started_by.c_str(), mark.c_str()) == 0) return true;
  const std::string known = link_target(mark);
  return known.empty() || known == started_by;
}

// Whether the process that made a rank's directory is still there.
bool has_living_owner(const std::string& rank_directory) {
  const std::string owner = link_target(rank_directory + "/.owner");
  pid_t pid = 0;
  std::from_chars(owner.data(), owner.data() + owner.size(), pid);
  return owner.empty() || owner == identity(pid);
}

}  // namespace

std::string machine_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

int claim_rank_directory(const std::string& base, const Rank& rank, RankPlace* place) {
  const std::string started_by = launcher();
  const std::string stem = base + "/.ranks-" + launch_key(rank, started_by);
  for (int attempt = 1; attempt < kMaxLaunches; ++attempt) {
    const std::string link = attempt == 1 ? stem : stem + "-" + std::to_string(attempt);
    std::string name = link_target(link);
    if (name.empty()) {
      std::string made;
      const int error = make_launch(base, link, rank, &made);
      if (error != 0 && error != EEXIST) {
        place->path = made.empty() ? base : made;
        return error;
      }
      name = error == 0 ? made.substr(base.size() + 1) : link_target(link);
      if (name.empty()) {
        place->path = link;
        return errno;
      }
    }
    if (!is_beside(name)) continue;
    const std::string launch = base + "/" + name;
    if (!is_directory(launch) || !belongs_to(launch, started_by)) continue;
    place->path = launch + "/rank" + std::to_string(rank.number);
    const std::string owner = place->path + "/.owner", mine = identity(getpid());
    if (mkdir(place->path.c_str(), 0777) == 0) {
      if (symlink(mine.c_str(), owner.c_str()) == 0) return 0;
      const int error = errno;
      rmdir(place->path.c_str());
      return error;
    }
    if (errno != EEXIST) return errno;
    place->is_taken = has_living_owner(place->path);
    if (place->is_taken) return 0;
  }
  return EEXIST;
}

}  // namespace aoti_debug
