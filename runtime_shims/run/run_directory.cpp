#include "run_directory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <string_view>

#include "loaded_from.h"
#include "machine/file.h"
#include "results_home.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

constexpr int kMaxAttempts = 10000;
constexpr size_t kMaxCommandLine = 65536;
constexpr char kJournal[] = "journal.bin", kManifest[] = "manifest.json", kRunJson[] = "run.json", kOwner[] = ".owner",
               kSummaries[] = "summaries.bin";

std::string now_as(const char* format) {
  const time_t now = time(nullptr);
  tm parts;
  localtime_r(&now, &parts);
  char text[64];
  const size_t bytes = strftime(text, sizeof(text), format, &parts);
  return std::string(text, bytes);
}

// A string field of the manifest's outermost object, as JSON; "null" where there is none. The manifest writes the first
// ones before anything nested, and no nested object has one that is called source_sha256.
std::string manifest_field(const AotiDebugPackage& package, std::string_view name) {
  const std::string_view manifest(package.manifest, package.manifest_bytes);
  std::string key = "\"" + std::string(name) + "\":";
  const size_t found = manifest.find(key);
  if (found == std::string_view::npos) return "null";
  const size_t start = manifest.find_first_not_of(" \n", found + key.size());
  if (start == std::string_view::npos || manifest[start] != '"') return "null";
  size_t end = start + 1;
  while (end < manifest.size() && manifest[end] != '"') end += manifest[end] == '\\' ? 2 : 1;
  return end < manifest.size() ? std::string(manifest.substr(start, end + 1 - start)) : "null";
}

// This process's command line as a JSON list.
std::string command_line() {
  std::string words;
  read_file("/proc/self/cmdline", &words);
  if (words.size() > kMaxCommandLine) words.resize(kMaxCommandLine);
  std::string json = "[";
  for (size_t start = 0; start < words.size();) {
    const size_t end = std::min(words.find('\0', start), words.size());
    if (start != 0) json += ", ";
    append_json(json, std::string_view(words).substr(start, end - start));
    start = end + 1;
  }
  return json + "]";
}

std::string patterns(const Filter& filter) {
  std::string json = "[";
  for (const std::string& word : filter.words()) {
    if (json.size() > 1) json += ", ";
    append_json(json, word);
  }
  return json + "]";
}

const char* phase_name(PhaseChoice phase) {
  switch (phase) {
    case PhaseChoice::kBefore:
      return "\"before\"";
    case PhaseChoice::kAfter:
      return "\"after\"";
    case PhaseChoice::kBoth:
      return "\"both\"";
    case PhaseChoice::kByRole:
      break;
  }
  return "null";
}

}  // namespace

std::string table_of_weights(const std::string& path, const AotiDebugPackage& package) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return path;
  const std::string name = manifest_field(package, "source_sha256");
  const std::string table = path + "/" + (name.front() == '"' ? name.substr(1, name.size() - 2) : "");
  return stat(table.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? table : "";
}

std::string started_now() {
  std::string text = now_as("%Y-%m-%dT%H:%M:%S%z");
  if (text.size() > 2) text.insert(text.size() - 2, ":");
  return text;
}

void link_latest(const std::string& base, const std::string& name) {
  const std::string latest = base + "/latest";  // first: a failure after the link is made would leave it
  const std::string temporary = base + "/.latest-" + name;
  if (symlink(name.c_str(), temporary.c_str()) != 0) return;
  if (rename(temporary.c_str(), latest.c_str()) != 0) unlink(temporary.c_str());
}

int make_stamped_directory(const std::string& base, std::string* path) {
  const std::string stem = now_as("%Y%m%d-%H%M%S") + "-" + std::to_string(getpid());
  for (int attempt = 1; attempt < kMaxAttempts; ++attempt) {
    *path = base + "/" + (attempt == 1 ? stem : stem + "-" + std::to_string(attempt));
    if (mkdir(path->c_str(), 0777) == 0) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

void RunDirectory::discard() {
  const auto remove_made = [this](bool made, const char* name) {
    char file[PATH_MAX];
    const int length = snprintf(file, sizeof(file), "%s/%s", path_.c_str(), name);
    if (made && length > 0 && static_cast<size_t>(length) < sizeof(file)) unlink(file);
  };
  remove_made(made_journal_, kSummaries);
  remove_made(made_run_json_, kRunJson);
  remove_made(made_manifest_, kManifest);
  remove_made(made_journal_, kJournal);
  remove_made(made_directory_, kOwner);
  if (made_directory_) rmdir(path_.c_str());
  made_directory_ = made_journal_ = made_manifest_ = made_run_json_ = open_ = false;
}

void RunDirectory::begin() {
  const size_t slash = path_.rfind('/');
  if (is_latest_) link_latest(path_.substr(0, slash), path_.substr(slash + 1));
  made_directory_ = made_journal_ = made_manifest_ = made_run_json_ = false;
}

int RunDirectory::create(const Config& config) {
  std::string base = config.base_directory;
  int error = base.empty() ? make_runs_folder(config.home, &base) : make_directories(base);
  failed_ = base;
  if (error != 0) return error;
  base = absolute(base);
  if (config.rank.is_one_of_many()) return create_of_rank(base, config.rank);
  error = make_stamped_directory(base, &path_);
  made_directory_ = is_latest_ = error == 0;
  failed_ = path_;
  return error;
}

int RunDirectory::create_of_rank(const std::string& base, const Rank& rank) {
  RankPlace place;
  const int error = claim_rank_directory(base, rank, &place);
  path_.swap(place.path);
  made_directory_ = error == 0 && !place.is_taken;
  failed_ = path_;
  return error == 0 && place.is_taken ? create_inside(path_) : error;
}

int RunDirectory::create_inside(const std::string& parent_run) {
  const std::string stem = parent_run + "/process-" + std::to_string(getpid());  // parent_run may be path_
  for (int attempt = 1; attempt < kMaxAttempts; ++attempt) {
    failed_ = attempt == 1 ? stem : stem + "-" + std::to_string(attempt);
    path_ = failed_;
    made_directory_ = mkdir(path_.c_str(), 0777) == 0;
    if (made_directory_) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

int RunDirectory::make_journal() {
  failed_ = path_ + "/" + kJournal;
  const int error = create_file(failed_, &journal_);
  made_journal_ = error == 0;
  return error;
}

int RunDirectory::adopt(const std::string& run_directory) {
  path_ = absolute(run_directory);
  const int error = make_journal();
  parent_ = error == 0;
  if (error != EEXIST) return error;
  return create_inside(path_);
}

int RunDirectory::open(const Config& config, const AotiDebugPackage& package, bool has_device) {
  int error = config.run_directory.empty() ? create(config) : adopt(config.run_directory);
  if (error == 0 && !journal_.is_open()) error = make_journal();
  if (error == 0) error = describe(config, package, has_device);
  open_ = error == 0;
  return error;
}

int RunDirectory::describe(const Config& config, const AotiDebugPackage& package, bool has_device) {
  failed_ = path_ + "/" + kManifest;
  if (access(failed_.c_str(), F_OK) != 0) {
    const int error = replace_file(failed_, std::string_view(package.manifest, package.manifest_bytes));
    made_manifest_ = error == 0;
    if (error != 0) return error;
  }
  if (parent_) return 0;
  run_json_ = "{\"format\": 1, \"tool_version\": " + manifest_field(package, "tool_version");
  run_json_ += ", \"torch_version\": " + manifest_field(package, "torch_version");
  run_json_ += ", \"pid\": " + std::to_string(getpid()) + ", \"started\": \"" + started_now() + "\"";
  run_json_ += ", \"level\": " + std::to_string(config.level) + ", \"filters\": " + patterns(config.filter);
  run_json_ += ", \"module_filters\": " + patterns(config.modules);
  run_json_ += ", \"line_filters\": " + patterns(config.lines);
  run_json_ += std::string(", \"phase\": ") + phase_name(config.phase);
  run_json_ += std::string(", \"device\": ") + (has_device ? "\"cuda\"" : "\"cpu\"");
  if (config.rank.is_one_of_many()) {
    run_json_ += ", \"rank\": {\"number\": " + std::to_string(config.rank.number);
    run_json_ += ", \"world_size\": " + std::to_string(config.rank.world_size) + ", \"machine\": ";
    append_json(run_json_, machine_name());
    run_json_ += '}';
  }
  if (config.guards) run_json_ += ", \"guards\": true, \"poison\": " + std::to_string(config.poison);
  run_json_ += ", \"command\": " + command_line() + loaded_from_json();
  run_json_ += ", \"host\": \"embedded\", \"exit\": {\"kind\": \"";
  failed_ = path_ + "/" + kRunJson;
  const int error = write_run_json("running", "");
  made_run_json_ = error == 0;
  return error;
}

int RunDirectory::write_run_json(const char* exit_kind, std::string_view detail) const {
  std::string text = run_json_ + exit_kind + "\", \"detail\": ";
  if (detail.empty()) {
    text += "null";
  } else {
    append_json(text, detail);
  }
  return replace_file(path_ + "/" + kRunJson, text + "}}\n");
}

void RunDirectory::finish(const char* kind, std::string_view detail) {
  if (open_ && !parent_) write_run_json(kind, detail);
}

}  // namespace aoti_debug
