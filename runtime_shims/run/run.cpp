#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "device/device.h"
#include "tensors/dtype.h"
#include "thread_state.h"

namespace aoti_debug {

Run::Run(Config config_, const AotiDebugPackage& package_, uint32_t generation_)
    : config(std::move(config_)), package(package_), generation(generation_), has_device(device::owns(kDeviceCuda)) {
  selected_.reserve(package.n_sites);
  for (uint32_t i = 0; i < package.n_sites; ++i) {
    const AotiDebugSite& site = package.sites[i];
    has_side_streams_ |= site.side_stream != 0;
    selected_.push_back(config.filter.matches(site.kernel) && config.modules.matches_module(site.modules) &&
                        config.lines.matches_line(site.lines));
  }
  selects_all_ = config.launches.empty() && selected_sites() == selected_.size();
}

Run::~Run() = default;

ThreadState* Run::add_thread(uint32_t id) {
  auto thread = std::make_unique<ThreadState>(this, id);
  ThreadState* added = thread.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  threads_.push_back(std::move(thread));
  threads_seen_.fetch_add(1);
  return added;
}

void Run::forget_thread(const ThreadState* thread) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(threads_.begin(), threads_.end(), [&](const auto& t) { return t.get() == thread; });
  if (found != threads_.end()) threads_.erase(found);
}

void Run::start() {
  const int error = directory.open(config, package, has_device);
  if (error != 0) {
    directory.discard();
    return note(NOTE_RECORDING_STOPPED, "nothing is recorded: " + directory.failed() + ": " + strerror(error), true);
  }
  const int journal_error =
      journal.open(directory.take_journal(), {config.level, config.level == LEVEL_NAMES, config.journal_bytes});
  if (journal_error != 0) {
    directory.discard();
    const std::string path = directory.path() + "/journal.bin";
    note(NOTE_RECORDING_STOPPED, "nothing is recorded: " + path + ": " + strerror(journal_error), true);
  } else {
    const std::lock_guard<std::mutex> lock(mutex_);
    notes_ = std::make_unique<JournalWriter>(&journal, static_cast<uint32_t>(syscall(SYS_gettid)));
    notes_->next_block();
  }
  for (const std::string& complaint : config.complaints) note(NOTE_CONFIGURATION, complaint, false);
  const bool narrowed = !config.modules.words().empty() || !config.lines.words().empty();
  if (narrowed && std::find(selected_.begin(), selected_.end(), 1) == selected_.end()) {
    note(NOTE_CONFIGURATION, "no launch of this package is in the chosen modules and lines", !directory.has_parent());
  }
  if (config.summaries != 0 && journal.is_open()) {
    const int summaries_error =
        summaries.open(directory.path(), static_cast<uint32_t>(config.summaries), config.summaries_bytes);
    if (summaries_error != 0) {
      note(NOTE_RECORDING_STOPPED, std::string("no summaries: summaries.bin: ") + strerror(summaries_error), true);
    }
  }
  if (!config.watchpoints.empty() && journal.is_open()) start_watchpoints();
  if (!config.substitute.empty()) {
    substitutions = std::make_unique<Substitutions>();
    const std::string mistake = substitutions->read(config.substitute);
    if (!mistake.empty()) note(NOTE_NOT_SUBSTITUTED, mistake, true);
  }
  const bool saves = config.level == LEVEL_SAVE || (watchpoints != nullptr && watchpoints->does(WATCH_SAVE));
  if (saves && journal.is_open()) {
    const SaveLimits limits{config.max_bytes, config.max_files, config.max_tensor_bytes, config.keep_free_bytes};
    store = std::make_unique<TensorStore>(&journal, directory.path(), limits, &weights);
  }
  if ((saves || config.flight != 0) && journal.is_open()) {
    const std::string table = table_of_weights(config.weights, package);
    const std::string problem = table.empty() ? "" : weights.open(table);
    if (!problem.empty()) note(NOTE_CONFIGURATION, "weights are saved, not referred to: " + problem, true);
  }
}

void Run::record_print(const LaunchId& id, const std::string& text) {
  Print fields{};
  fields.call = id.call;
  fields.launch = id.launch;
  fields.kind = id.kind;
  fields.text_bytes = static_cast<uint32_t>(std::min<size_t>(text.size(), 16384));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!journal.is_open()) return;
  if (prints_ == nullptr) {
    prints_ = std::make_unique<JournalWriter>(&journal, static_cast<uint32_t>(syscall(SYS_gettid)));
  }
  append(*prints_, RECORD_PRINT, 0, &fields, sizeof(fields), text.data(), fields.text_bytes);
}

void Run::start_watchpoints() {
  const bool before = config.phase == PhaseChoice::kBefore || config.phase == PhaseChoice::kBoth;
  const bool after = config.phase == PhaseChoice::kAfter || config.phase == PhaseChoice::kBoth;
  watchpoints = std::make_unique<Watchpoints>(config.watchpoints, config.on_hit, package, before, after);
  for (uint32_t i = 0; i < config.watchpoints.size(); ++i) {
    const std::string& text = config.watchpoints[i].text;
    const ::Watch fields{i, static_cast<uint32_t>(text.size())};
    record(RECORD_WATCH, 0, &fields, sizeof(fields), text.data(), text.size());
  }
}

void Run::record_watch_count(uint32_t watch) {
  const WatchCount fields = watchpoints->count(watch);
  record(RECORD_WATCH_COUNT, 0, &fields, sizeof(fields), nullptr, 0);
}

void Run::note_results(bool idle) {
  headlines.drain();
  for (uint32_t i = 0; watchpoints != nullptr && i < watchpoints->all().size(); ++i) record_watch_count(i);
  if (substitutions != nullptr) note(NOTE_SUBSTITUTED, substitutions->summary(), false);
  if (idle) store.reset();
  note_stops();
}

void Run::finish(bool idle, bool failed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_cut_short = failed || (journal.has_stopped() && config.level != LEVEL_NAMES);
  if (notes_ != nullptr && notes_->start(0) != nullptr) {
    notes_->finish(RECORD_RUN_END, is_cut_short ? RUN_END_CUT_SHORT : 0, journal.now_ns());
  }
  if (idle && journal.is_open()) journal.trim();
  if (!directory.has_parent()) {
    crumbs.keep_copy();
    if (!has_failed()) idle ? flight.close() : flight.remove();
  }
  directory.finish("clean", is_cut_short ? "the recording stopped before the end" : "");
}

bool Run::has_failed() const {
  char text[256] = "";
  return faulted.load() || (has_device && device::pending_error(nullptr, text, sizeof(text)) != 0);
}

void Run::note(NoteCode code, const std::string& text, bool tell) {
  const uint32_t bytes = static_cast<uint32_t>(std::min<size_t>(text.size(), 4096));
  const Note fields{static_cast<uint32_t>(code), bytes};
  record(RECORD_NOTE, 0, &fields, sizeof(fields), text.data(), bytes);
  if (tell) live.write("aoti-debug: " + text + "\n");
}

void Run::record(RecordType type, uint16_t flags, const void* fields, size_t bytes, const void* tail,
                 size_t tail_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (notes_ != nullptr) append(*notes_, type, flags, fields, bytes, tail, tail_bytes);
}

void Run::append(JournalWriter& writer, RecordType type, uint16_t flags, const void* fields, size_t bytes,
                 const void* tail, size_t tail_bytes) {
  uint8_t* to = writer.start(static_cast<uint32_t>(bytes + tail_bytes));
  if (to == nullptr) return;
  memcpy(to, fields, bytes);
  if (tail_bytes != 0) memcpy(to + bytes, tail, tail_bytes);
  writer.finish(type, flags, journal.now_ns());
}

void Run::note_stops() {
  if (journal.has_stopped()) {
    if (const std::string reason = journal.take_stop_reason(); !reason.empty()) {
      note(NOTE_RECORDING_STOPPED, (config.level == LEVEL_NAMES ? "" : "recording stopped: ") + reason, true);
    }
  }
  if (const std::string news = summaries.take_news(); !news.empty()) note(NOTE_CONFIGURATION, news, true);
  if (store != nullptr && !store->is_saving()) {
    if (const std::string reason = store->take_stop_reason(); !reason.empty()) {
      note(NOTE_RECORDING_STOPPED, "tensors are no longer saved: " + reason, true);
    }
  }
}

bool Run::selects(const AotiDebugSite& site, uint8_t kind, uint32_t call, uint32_t launch) const {
  if (site.id < selected_.size() && selected_[site.id] == 0) return false;
  if (config.launches.empty()) return true;
  return std::any_of(config.launches.begin(), config.launches.end(), [&](const LaunchChoice& choice) {
    return choice.kind == kind && choice.call == call && choice.launch == launch;
  });
}

std::atomic<bool> Run::any_stopped_{false};

size_t Run::selected_sites() const {
  return static_cast<size_t>(std::count(selected_.begin(), selected_.end(), uint8_t{1}));
}

void Run::stop(const std::string& why) {
  if (stopping_.exchange(true)) return;
  why_stopped_ = why;
  any_stopped_.store(true, std::memory_order_relaxed);
  stopped_.store(true, std::memory_order_release);
}

void Run::open_crumbs() {
  std::call_once(crumbs_tried, [this] {
    if (!journal.is_open()) return;
    const std::string reason = crumbs.open(directory.path(), config.crumb_every);
    if (reason.empty()) {
      journal.set_crumb_every(crumbs.most_launches());
      const char* const dumps = getenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION");
      if (dumps && strcmp(dumps, "1") == 0) {
        note(NOTE_GPU_CORE, "with core dumps of the GPU on, it goes on behind a kernel that has failed", false);
      }
    } else {
      note(NOTE_CRUMBS_OFF, "no breadcrumbs: " + reason, true);
    }
  });
}

void Run::open_flight() {
  std::call_once(flight_tried, [this] {
    if (!journal.is_open()) return;
    const bool chosen = config.flight_bytes != kNoLimit;
    const std::optional<uint64_t> bytes = chosen ? std::optional<uint64_t>(config.flight_bytes) : std::nullopt;
    const std::string reason = flight.open(directory.path(), config.flight, bytes, has_device, weights.described());
    if (!reason.empty()) note(NOTE_FLIGHT_OFF, "no flight recorder: " + reason, true);
  });
}

bool Run::is_newly_unguarded(uint32_t allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unguarded_.insert(allocation).second;
}

std::vector<StatsQueue*> Run::stats_queues() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<StatsQueue*> queues;
  queues.reserve(queues_.size());
  for (const auto& [key, queue] : queues_) queues.push_back(queue.get());
  return queues;
}

StatsQueue& Run::stats_queue(void* stream, uint32_t thread) {
  // This handle is another stream in every thread (CU_STREAM_PER_THREAD).
  const bool of_thread = reinterpret_cast<uintptr_t>(stream) == 2;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::pair<void*, uint32_t> key(stream, of_thread ? thread : 0);
  if (const auto found = queues_.find(key); found != queues_.end()) return *found->second;
  return *queues_.emplace(key, std::make_unique<StatsQueue>(stream)).first->second;
}

}  // namespace aoti_debug
