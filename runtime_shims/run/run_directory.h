// The directory that a run writes: its own, or one that a parent has made.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "aoti_debug.h"
#include "configuration.h"
#include "machine/file.h"

namespace aoti_debug {

// Makes a new directory in `base` (absolute), named by time and process. 0, or an errno.
int make_stamped_directory(const std::string& base, std::string* path);

// Points `latest` in `base` at a directory there. Another process that does the same at the same time may win.
void link_latest(const std::string& base, const std::string& name);

// The table of weights (weights_file.h) that AOTI_DEBUG_WEIGHTS names: the file, or that of this package in the folder,
// which is called like the SHA-256 of its wrapper. "" where there is none.
std::string table_of_weights(const std::string& path, const AotiDebugPackage& package);

// Now in ISO 8601, with the zone as +hh:mm.
std::string started_now();

class RunDirectory {
 public:
  RunDirectory() = default;
  ~RunDirectory() { discard(); }
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Makes a directory under `config.base_directory` (with run.json), or adopts `config.run_directory`; creates the
  // journal. One of many ranks gets a folder of the directory that they have in common. A directory whose journal
  // another process or package writes gets a folder for this one. 0, or an errno; then `failed` says what could not be
  // made. All of it goes again unless `begin` follows.
  int open(const Config& config, const AotiDebugPackage& package, bool has_device);

  // The run has begun: it stays, and the link `latest` leads to it.
  void begin();

  // What was made of a run that has not begun goes. Takes no memory: there may be none.
  void discard();

  const std::string& path() const { return path_; }
  const std::string& failed() const { return failed_; }

  // The new, empty journal.bin.
  File take_journal() { return std::move(journal_); }

  // Whether a parent watches over this run, and tidies up after it.
  bool has_parent() const { return parent_; }

  // Says in run.json how the run ended (only where there is no parent); `detail` may be empty.
  void finish(const char* kind, std::string_view detail);

 private:
  int create(const Config& config);
  int create_of_rank(const std::string& base, const Rank& rank);
  int adopt(const std::string& run_directory);
  int create_inside(const std::string& parent_run);
  int describe(const Config& config, const AotiDebugPackage& package, bool has_device);
  int make_journal();
  int write_run_json(const char* exit_kind, std::string_view detail) const;

  std::string path_;
  std::string failed_;
  bool made_directory_ = false, made_journal_ = false, made_manifest_ = false, made_run_json_ = false;  // goes again
  bool is_latest_ = false;  // once it has begun
  File journal_;
  std::string run_json_;  // up to the exit kind
  bool open_ = false;
  bool parent_ = false;
};

}  // namespace aoti_debug
