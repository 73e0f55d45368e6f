#include "tensor_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "background_thread.h"
#include "dtype.h"
#include "file.h"
#include "strided.h"

namespace aoti_debug {

// A tensor on its way to its file.
struct SaveJob {
  explicit SaveJob(const device::TensorView& view) : reader(view) {}

  LaunchId id;
  Phase phase;
  uint16_t slot;
  SaveBatch* batch;
  StridedReader reader;  // of a host tensor
  int64_t numel;
  uint64_t element_bytes;
  uint64_t bytes;  // of the elements
  std::string header;
  TensorPath path;
  std::string temporary;
  uint64_t hash[2] = {0, 0};
  bool reserved = false;

  std::mutex mutex;  // guards what several pieces share
  File file;
  HashSums sums;
  int error = 0;  // errno of the first failure
  bool lost = false;  // a device error
  uint32_t pieces = 1;  // not processed yet

  uint64_t header_hash() const {
    return hash_bytes(reinterpret_cast<const uint8_t*>(header.data()), header.size(), 0);
  }
  void set_hash(const HashSums& from) {
    hash[0] = hash_finish(from.first, bytes);
    hash[1] = hash_finish(from.second, bytes);
  }
};

namespace {

constexpr uint64_t kInlineBytes = uint64_t{256} << 10;  // not worth a thread's attention
constexpr uint64_t kGatherBytes = uint64_t{4} << 20;
constexpr unsigned kMostThreads = 4;

int ensure_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return 0;
  return errno == ENOENT ? make_directories(path) : errno;
}

}  // namespace

TensorStore::TensorStore(Journal* journal, std::string run_directory, const SaveLimits& limits)
    : journal_(journal), directory_(std::move(run_directory)), limits_(limits) {}

TensorStore::~TensorStore() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string TensorStore::take_stop_reason() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(stop_reason_, std::string());
}

void TensorStore::stop(std::string reason) {
  if (stopped_.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  stop_reason_ = std::move(reason);
}

std::shared_ptr<SaveJob> TensorStore::make_job(const SaveRequest& request, SaveBatch* batch) const {
  const device::TensorView view = view_of(request.meta);
  auto job = std::make_shared<SaveJob>(view);
  job->id = request.id;
  job->phase = request.phase;
  job->slot = request.slot;
  job->batch = batch;
  job->numel = view.numel;
  job->element_bytes = view.element_bytes;
  job->bytes = logical_bytes(request.meta);
  job->header = safetensors_header(request.argument, request.meta);
  job->path = tensor_path(request.id, request.phase, request.kernel, request.argument, request.meta);
  return job;
}

void TensorStore::record(const SaveJob& job, JournalWriter* writer, SaveStatus status, const std::string& reason) const {
  const std::string path = status == SAVE_SKIPPED ? std::string() : job.path.whole();
  const uint32_t payload = static_cast<uint32_t>(sizeof(TensorFile) + path.size() + reason.size());
  uint8_t* to = writer->start(payload);
  if (to == nullptr) return;
  TensorFile record{};
  record.call = job.id.call;
  record.launch = job.id.launch;
  record.kind = job.id.kind;
  record.slot = job.slot;
  record.phase = static_cast<uint8_t>(job.phase);
  record.status = static_cast<uint8_t>(status);
  record.bytes = job.bytes;
  memcpy(record.hash, job.hash, sizeof(record.hash));
  record.path_bytes = static_cast<uint32_t>(path.size());
  record.reason_bytes = static_cast<uint32_t>(reason.size());
  memcpy(to, &record, sizeof(record));
  memcpy(to + sizeof(record), path.data(), path.size());
  memcpy(to + sizeof(record) + path.size(), reason.data(), reason.size());
  writer->finish(RECORD_TENSOR_FILE, 0, journal_->now_ns());
}

bool TensorStore::reserve(uint64_t bytes) {
  struct statvfs disk;
  const bool known = statvfs(directory_.c_str(), &disk) == 0;
  const uint64_t free_bytes = known ? uint64_t{disk.f_bavail} * disk.f_frsize : UINT64_MAX;
  std::string reason;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (n_files_ >= limits_.files) {
      reason = "AOTI_DEBUG_MAX_FILES is reached";
    } else if (bytes > limits_.bytes || n_bytes_ > limits_.bytes - bytes) {
      reason = "AOTI_DEBUG_MAX_BYTES is reached";
    } else if (bytes > free_bytes || free_bytes - bytes < limits_.keep_free_bytes) {
      reason = "the disk would have less than AOTI_DEBUG_KEEP_FREE_BYTES left";
    } else {
      ++n_files_;
      n_bytes_ += bytes;
    }
  }
  if (reason.empty()) return true;
  stop(std::move(reason));
  return false;
}

bool TensorStore::link_known(SaveJob& job, JournalWriter* writer) {
  const Key key{job.header_hash(), job.hash[0]};
  std::string earlier;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(key);
    if (found == known_.end()) return false;
    if (job.hash[1] == 0) job.hash[1] = found->second.second_hash;
    if (job.hash[1] != found->second.second_hash) return false;
    earlier = found->second.path;
  }
  if (!reserve(0)) return true;
  const std::string path = directory_ + "/" + job.path.whole();
  if (ensure_directory(directory_ + "/" + job.path.directory) != 0 ||
      link((directory_ + "/" + earlier).c_str(), path.c_str()) != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --n_files_;
    known_.erase(key);
    return false;
  }
  record(job, writer, SAVE_LINKED, "");
  return true;
}

int TensorStore::create_temporary(SaveJob& job) {
  job.temporary = directory_ + "/tensors/.tmp-" + std::to_string(n_temporary_.fetch_add(1));
  int error = create_file(job.temporary, &job.file);
  if (error == ENOENT) {
    error = make_directories(directory_ + "/tensors");
    if (error == 0) error = create_file(job.temporary, &job.file);
  }
  if (error == 0 && !file_size_allowed(job.header.size() + job.bytes)) error = EFBIG;
  if (error == 0) error = write_at(job.file, job.header.data(), job.header.size(), 0);
  return error;
}

int TensorStore::write_host(SaveJob& job) {
  if (job.reader.is_contiguous()) {
    return write_at(job.file, job.reader.read(0, job.numel, nullptr), job.bytes, job.header.size());
  }
  const int64_t block = static_cast<int64_t>(std::min<uint64_t>(job.bytes, kGatherBytes) / job.element_bytes);
  const std::unique_ptr<uint8_t[]> buffer(new uint8_t[static_cast<size_t>(block) * job.element_bytes]);
  for (int64_t at = 0; at < job.numel; at += block) {
    const int64_t count = std::min(block, job.numel - at);
    job.reader.read(at, count, buffer.get());
    const uint64_t offset = job.header.size() + static_cast<uint64_t>(at) * job.element_bytes;
    const int error = write_at(job.file, buffer.get(), static_cast<uint64_t>(count) * job.element_bytes, offset);
    if (error != 0) return error;
  }
  return 0;
}

void TensorStore::publish(SaveJob& job, JournalWriter* writer) {
  int error = job.file.close();
  if (error == 0) error = ensure_directory(directory_ + "/" + job.path.directory);
  const std::string path = directory_ + "/" + job.path.whole();
  if (error == 0 && rename(job.temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) return discard(job, error);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_[Key{job.header_hash(), job.hash[0]}] = Known{job.hash[1], job.path.whole()};
  }
  record(job, writer, SAVE_WRITTEN, "");
}

void TensorStore::discard(SaveJob& job, int error) {
  job.file.close();
  if (!job.temporary.empty()) unlink(job.temporary.c_str());
  if (job.reserved) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --n_files_;
    n_bytes_ -= job.bytes;
  }
  if (error != 0) stop("cannot save " + job.path.whole() + ": " + strerror(error));
}

void TensorStore::finish(SaveJob& job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    job.batch->pending_.fetch_sub(1, std::memory_order_release);
  }
  changed_.notify_all();
}

void TensorStore::save_host(const SaveRequest& request, SaveBatch* batch, JournalWriter* writer) {
  if (!is_saving()) return;
  const std::shared_ptr<SaveJob> job = make_job(request, batch);
  if (job->bytes > limits_.tensor_bytes) {
    return record(*job, writer, SAVE_SKIPPED, "larger than AOTI_DEBUG_MAX_TENSOR_BYTES");
  }
  job->set_hash(hash_tensor(view_of(request.meta)));
  if (link_known(*job, writer)) return;
  if (!reserve(job->bytes)) return;
  job->reserved = true;
  batch->add();
  Item item;
  item.job = job;
  if (job->bytes <= kInlineBytes) {
    process(item, writer);
  } else {
    submit(std::move(item), writer);
  }
}

void TensorStore::save_device(void* stream, const SaveRequest& request, std::optional<uint64_t> known_hash,
                              SaveBatch* batch, JournalWriter* writer) {
  if (!is_saving()) return;
  const std::shared_ptr<SaveJob> job = make_job(request, batch);
  if (job->bytes > limits_.tensor_bytes) {
    return record(*job, writer, SAVE_SKIPPED, "larger than AOTI_DEBUG_MAX_TENSOR_BYTES");
  }
  if (known_hash.has_value()) {
    job->hash[0] = *known_hash;
    if (link_known(*job, writer)) return;
  }
  const uint64_t piece_bytes = StagingPool::kLargeBytes;
  job->pieces = static_cast<uint32_t>(std::max<uint64_t>((job->bytes + piece_bytes - 1) / piece_bytes, 1));
  if (job->pieces > 1) {
    if (!reserve(job->bytes)) return;
    job->reserved = true;
  }
  batch->add();
  const device::TensorView view = view_of(request.meta);
  uint64_t offset = 0;
  for (uint32_t left = job->pieces; left > 0; --left) {
    Item item;
    item.job = job;
    item.offset = offset;
    item.bytes = std::min(job->bytes - offset, piece_bytes);
    item.buffer = staging_.acquire(item.bytes);
    const bool copying = item.buffer != nullptr &&
                         (item.bytes == 0 ||
                          device::begin_copy(stream, view, offset, item.bytes, item.buffer, &item.ticket));
    if (!copying) {
      const std::lock_guard<std::mutex> lock(job->mutex);
      job->lost = true;
    }
    offset += item.bytes;
    submit(std::move(item), writer);
  }
}

void TensorStore::wait(SaveBatch* batch, JournalWriter* writer) {
  while (batch->pending_.load(std::memory_order_acquire) != 0) {
    Item item;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || batch->pending_.load(std::memory_order_acquire) == 0; });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    process(item, writer);
  }
}

void TensorStore::submit(Item item, JournalWriter* writer) {
  if (!start_threads()) return process(item, writer);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_all();
}

bool TensorStore::start_threads() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!threads_.empty() || threads_failed_) return !threads_.empty();
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  while (threads_.size() < count) {
    std::thread thread = background_thread([this] { write_files(); });
    if (!thread.joinable()) break;
    threads_.push_back(std::move(thread));
  }
  threads_failed_ = threads_.empty();
  return !threads_.empty();
}

void TensorStore::write_files() {
  JournalWriter writer(journal_, static_cast<uint32_t>(syscall(SYS_gettid)));
  for (;;) {
    Item item;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    process(item, &writer);
  }
}

void TensorStore::process(Item& item, JournalWriter* writer) {
  try {
    if (item.buffer == nullptr && !item.job->lost) {
      process_host(*item.job, writer);
    } else {
      process_piece(item, writer);
    }
  } catch (const std::exception& error) {
    stop(std::string("cannot save ") + error.what());
    discard(*item.job, 0);
    finish(*item.job);
  }
}

void TensorStore::process_host(SaveJob& job, JournalWriter* writer) {
  int error = create_temporary(job);
  if (error == 0) error = write_host(job);
  if (error == 0) {
    publish(job, writer);
  } else {
    discard(job, error);
  }
  finish(job);
}

void TensorStore::process_piece(Item& item, JournalWriter* writer) {
  SaveJob& job = *item.job;
  const bool arrived = item.buffer != nullptr && (item.bytes == 0 || device::wait_copy(item.ticket));
  const uint8_t* data = static_cast<const uint8_t*>(item.buffer);
  HashSums sums;
  if (arrived) sums = hash_bytes_twice(data, item.bytes, item.offset / sizeof(uint64_t));
  bool alone = false;
  {
    const std::lock_guard<std::mutex> lock(job.mutex);
    job.lost |= !arrived;
    job.sums.add(sums);
    alone = item.offset == 0 && item.bytes == job.bytes;
    const bool writing = !job.lost && job.error == 0 && !alone;
    if (writing && !job.file.is_open()) job.error = create_temporary(job);
  }
  if (alone && arrived) {
    job.set_hash(job.sums);
    if (!link_known(job, writer) && reserve(job.bytes)) {
      job.reserved = true;
      int error = create_temporary(job);
      if (error == 0) error = write_at(job.file, data, item.bytes, job.header.size());
      if (error == 0) {
        publish(job, writer);
      } else {
        discard(job, error);
      }
    }
  } else if (arrived && job.file.is_open()) {
    const int error = write_at(job.file, data, item.bytes, job.header.size() + item.offset);
    const std::lock_guard<std::mutex> lock(job.mutex);
    if (job.error == 0) job.error = error;
  }
  if (item.buffer != nullptr) staging_.release(item.buffer);
  bool last = false;
  {
    const std::lock_guard<std::mutex> lock(job.mutex);
    last = --job.pieces == 0;
  }
  if (!last) return;
  if (!alone || job.lost) complete_pieces(job, writer);
  finish(job);
}

void TensorStore::complete_pieces(SaveJob& job, JournalWriter* writer) {
  if (job.lost) {
    discard(job, 0);
    return record(job, writer, SAVE_SKIPPED, "its bytes could not be copied from the device");
  }
  if (job.error != 0) return discard(job, job.error);
  job.set_hash(job.sums);
  if (link_known(job, writer)) {
    discard(job, 0);
  } else {
    publish(job, writer);
  }
}

}  // namespace aoti_debug
