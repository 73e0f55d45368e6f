#include "tensor_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "device/device.h"
#include "machine/file.h"
#include "tensors/hashing.h"
#include "tensors/strided.h"
#include "text/live_text.h"

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
  uint64_t header_hash;
  TensorPath path;
  std::string temporary;
  uint64_t hash[2] = {0, 0};
  std::optional<FileKey> announced;  // equal tensors wait for this one
  std::optional<uint64_t> reserved;  // bytes of the budget
  std::optional<uint64_t> place;     // in the file of the weights
  bool refers = false;               // to it: the header is all that is written

  std::mutex mutex;  // guards what several pieces share
  File file;
  HashSums sums;
  int error = 0;        // errno of the first failure
  bool lost = false;    // a piece could not be copied
  uint32_t pieces = 1;  // neither processed nor lost yet

  FileKey key() const { return {header_hash, hash[0]}; }
  std::string file_path() const { return refers ? path.reference() : path.whole(); }
  void set_hash(const HashSums& from) {
    hash[0] = hash_finish(from.first, bytes);
    hash[1] = hash_finish(from.second, bytes);
  }
};

// Pieces of a tensor that no thread has been told to process: those that never will be are lost, and the tensor with
// them.
class TensorStore::Unsubmitted {
 public:
  Unsubmitted(TensorStore* store, SaveJob* job, JournalWriter* writer)
      : store_(store), job_(job), writer_(writer), count_(job->pieces) {
    job->batch->add();
  }
  ~Unsubmitted() {
    if (count_ == 0) return;
    {
      const std::lock_guard<std::mutex> lock(job_->mutex);
      if (job_->error == 0) job_->error = ENOMEM;
    }
    store_->end_pieces(*job_, count_, writer_);
  }
  Unsubmitted(const Unsubmitted&) = delete;
  Unsubmitted& operator=(const Unsubmitted&) = delete;

  bool is_empty() const { return count_ == 0; }
  void submit(WriterPool::Task task) {
    --count_;
    store_->pool_.submit(std::move(task), writer_);
  }

 private:
  TensorStore* store_;
  SaveJob* job_;
  JournalWriter* writer_;
  uint32_t count_;
};

namespace {

constexpr uint64_t kGatherBytes = uint64_t{4} << 20;
constexpr uint64_t kStreamedBytes = uint64_t{1} << 20;       // larger host tensors are hashed while they are written
constexpr uint64_t kStreamPieceBytes = uint64_t{256} << 10;  // stays in a core's cache between the two
constexpr int64_t kBeginningElements = 4096;

int ensure_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return 0;
  return errno == ENOENT ? make_directories(path) : errno;
}

}  // namespace

TensorStore::TensorStore(Journal* journal, std::string run_directory, const SaveLimits& limits, WeightsFile* weights)
    : journal_(journal),
      directory_(std::move(run_directory)),
      budget_(directory_, limits),
      weights_(weights),
      pool_(journal) {}

std::shared_ptr<SaveJob> TensorStore::make_job(const SaveRequest& request, SaveBatch* batch, JournalWriter* writer) {
  const device::TensorView view = view_of(request.meta);
  auto job = std::make_shared<SaveJob>(view);
  job->id = request.id;
  job->phase = request.phase;
  job->slot = request.slot;
  job->batch = batch;
  job->numel = view.numel;
  job->element_bytes = view.element_bytes;
  job->bytes = logical_bytes(request.meta);
  if (job->bytes > budget_.limits().tensor_bytes) {
    record(*job, writer, SAVE_SKIPPED, "larger than AOTI_DEBUG_MAX_TENSOR_BYTES");
    return nullptr;
  }
  job->header = safetensors_header(request.argument, request.meta);
  job->header_hash = hash_bytes(reinterpret_cast<const uint8_t*>(job->header.data()), job->header.size(), 0);
  job->path = tensor_path(request.id, request.phase, request.kernel, request.argument, request.meta);
  // Whatever replaces a result maps its elements: in row-major order, without gaps.
  const bool is_mappable = !request.written || job->reader.is_contiguous();
  if (job->bytes > kReferredBytes && is_mappable) job->place = weights_->find(request.meta, request.argument);
  return job;
}

void TensorStore::record(const SaveJob& job, JournalWriter* writer, SaveStatus status, const char* reason) const {
  const std::string path = status == SAVE_SKIPPED ? std::string() : job.file_path();
  const size_t reason_bytes = strlen(reason);
  uint8_t* to = writer->start(static_cast<uint32_t>(sizeof(TensorFile) + path.size() + reason_bytes));
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
  record.reason_bytes = static_cast<uint32_t>(reason_bytes);
  memcpy(to, &record, sizeof(record));
  memcpy(to + sizeof(record), path.data(), path.size());
  memcpy(to + sizeof(record) + path.size(), reason, reason_bytes);
  writer->finish(RECORD_TENSOR_FILE, 0, journal_->now_ns());
}

bool TensorStore::link_known(SaveJob& job, JournalWriter* writer) {
  const std::optional<KnownFile> known = known_.find(job.key());
  if (!known.has_value()) return false;
  if (job.hash[1] == 0) job.hash[1] = known->second_hash;  // the device gives one hash only
  if (job.hash[1] != known->second_hash) return false;
  if (!budget_.reserve(0)) return true;
  job.refers = known->refers;
  const std::string earlier = directory_ + "/" + known->path, path = directory_ + "/" + job.file_path();
  if (ensure_directory(directory_ + "/" + job.path.directory) != 0 || link(earlier.c_str(), path.c_str()) != 0) {
    budget_.give_back(0);
    known_.forget(job.key());  // too many links, or the file is gone: the next one starts anew
    job.refers = false;
    return false;
  }
  record(job, writer, job.refers ? SAVE_REFERRED : SAVE_LINKED);
  return true;
}

bool TensorStore::refer(SaveJob& job, const SaveRequest& request, uint64_t place, JournalWriter* writer) {
  const HashSums sums = weights_->hash(request.meta, place, job.header_hash);
  const uint64_t hash[2] = {hash_finish(sums.first, job.bytes), hash_finish(sums.second, job.bytes)};
  const bool has_one = job.hash[1] == 0;  // the device gives one hash only
  if (hash[0] != job.hash[0] || (!has_one && hash[1] != job.hash[1])) return false;
  job.hash[1] = hash[1];
  if (!budget_.reserve(0)) return true;
  job.reserved = 0;
  job.refers = true;
  job.header = weights_->reference(request.argument, request.meta, place, hash);
  conclude(job, create_temporary(job), writer);
  return true;
}

bool TensorStore::link_coming(SaveJob& job, JournalWriter* writer) {
  const FileKey key = job.key();
  while (!link_known(job, writer)) {
    if (!known_.is_announced(key)) return false;
    pool_.help_until([&] { return !known_.is_announced(key); }, writer);
  }
  return true;
}

int TensorStore::create_temporary(SaveJob& job) {
  if (!file_size_allowed(job.header.size() + (job.refers ? 0 : job.bytes))) return EFBIG;
  job.temporary = directory_ + "/tensors/.tmp-" + std::to_string(n_temporary_.fetch_add(1));
  int error = create_file(job.temporary, &job.file);
  if (error == ENOENT) {
    error = make_directories(directory_ + "/tensors");
    if (error == 0) error = create_file(job.temporary, &job.file);
  }
  return error == 0 ? write_at(job.file, job.header.data(), job.header.size(), 0) : error;
}

int TensorStore::write_elements(SaveJob& job) {
  if (job.reader.is_contiguous()) {
    return write_at(job.file, job.reader.read(0, job.numel, nullptr), job.bytes, job.header.size());
  }
  const auto block = static_cast<int64_t>(std::min<uint64_t>(job.bytes, kGatherBytes) / job.element_bytes);
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

int TensorStore::hash_and_write_elements(SaveJob& job) {
  const auto block = static_cast<int64_t>(kStreamPieceBytes / job.element_bytes);
  const std::unique_ptr<uint8_t[]> buffer(
      job.reader.is_contiguous() ? nullptr : new uint8_t[static_cast<size_t>(block) * job.element_bytes]);
  for (int64_t at = 0; at < job.numel; at += block) {
    const int64_t count = std::min(block, job.numel - at);
    const uint8_t* data = job.reader.read(at, count, buffer.get());
    const uint64_t bytes = static_cast<uint64_t>(count) * job.element_bytes;
    const uint64_t offset = static_cast<uint64_t>(at) * job.element_bytes;
    job.sums.add(hash_bytes_twice(data, bytes, offset / sizeof(uint64_t)));
    if (const int error = write_at(job.file, data, bytes, job.header.size() + offset); error != 0) return error;
  }
  job.set_hash(job.sums);
  return 0;
}

void TensorStore::conclude(SaveJob& job, int error, JournalWriter* writer) {
  if (const int closing = job.file.close(); error == 0) error = closing;
  if (error == 0) error = ensure_directory(directory_ + "/" + job.path.directory);
  const std::string path = directory_ + "/" + job.file_path();
  if (error == 0 && rename(job.temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    budget_.stop("cannot save " + job.file_path() + ": " + strerror(error));
    return discard(job);
  }
  known_.add(job.key(), KnownFile{job.hash[1], job.file_path(), job.refers});
  record(job, writer, job.refers ? SAVE_REFERRED : SAVE_WRITTEN);
}

void TensorStore::discard(SaveJob& job) {
  job.file.close();
  if (!job.temporary.empty()) unlink(job.temporary.c_str());
  if (job.reserved.has_value()) budget_.give_back(*job.reserved);
  job.reserved.reset();
}

void TensorStore::finish(SaveJob& job) {
  if (job.announced.has_value()) known_.withdraw(*job.announced);
  job.batch->done();
  pool_.notify();
}

void TensorStore::save_host(const SaveRequest& request, JournalWriter* writer) {
  if (!is_saving()) return;
  const std::shared_ptr<SaveJob> job = make_job(request, nullptr, writer);
  if (job == nullptr) return;
  try {
    if (const std::optional<uint64_t> place = job->place; place.has_value()) {
      job->set_hash(hash_elements(job->reader, job->numel, job->element_bytes));
      if (link_known(*job, writer) || refer(*job, request, *place, writer)) return;
    }
    const bool large = job->bytes > kStreamedBytes;
    FileKey beginning{job->header_hash, 0};
    if (large) {
      beginning.content =
          hash_elements(job->reader, std::min(job->numel, kBeginningElements), job->element_bytes).first;
    }
    const bool streamed = large && !known_.begins_alike(beginning);
    if (!streamed) {
      job->set_hash(hash_elements(job->reader, job->numel, job->element_bytes));
      if (link_known(*job, writer)) return;
    }
    if (!budget_.reserve(job->bytes)) return;
    job->reserved = job->bytes;
    int error = create_temporary(*job);
    if (error == 0) error = streamed ? hash_and_write_elements(*job) : write_elements(*job);
    conclude(*job, error, writer);
    if (large && error == 0) known_.add_beginning(beginning);
  } catch (const std::exception& error) {
    budget_.stop(failure_text(error));
    discard(*job);
  }
}

void TensorStore::save_device(void* stream, const SaveRequest& request, std::optional<uint64_t> known_hash,
                              SaveBatch* batch, JournalWriter* writer) {
  if (!is_saving()) return;
  const std::shared_ptr<SaveJob> job = make_job(request, batch, writer);
  if (job == nullptr) return;
  if (known_hash.has_value()) {
    job->hash[0] = *known_hash;
    if (link_coming(*job, writer)) return;
    if (job->place.has_value() && refer(*job, request, *job->place, writer)) return;
  }
  constexpr uint64_t kPieceBytes = StagingPool::kLargeBytes;
  job->pieces = static_cast<uint32_t>(std::max<uint64_t>((job->bytes + kPieceBytes - 1) / kPieceBytes, 1));
  if (job->pieces > 1) {
    if (!budget_.reserve(job->bytes)) return;
    job->reserved = job->bytes;
  }
  Unsubmitted rest(this, job.get(), writer);
  if (known_hash.has_value() && known_.announce(job->key())) job->announced = job->key();
  const device::TensorView view = view_of(request.meta);
  for (uint64_t offset = 0; !rest.is_empty(); offset += kPieceBytes) {
    const auto piece = std::make_shared<Piece>();
    WriterPool::Task task = [this, job, piece](JournalWriter* of_thread) { process_piece(*job, *piece, of_thread); };
    piece->offset = offset;
    piece->bytes = std::min(job->bytes - offset, kPieceBytes);
    piece->copy = StagedCopy(&staging_, stream, view, piece->offset, piece->bytes);
    rest.submit(std::move(task));
  }
}

void TensorStore::process_piece(SaveJob& job, Piece& piece, JournalWriter* writer) {
  const uint8_t* const data = piece.copy.wait();
  const bool arrived = data != nullptr;
  const bool only = piece.bytes == job.bytes;
  try {
    HashSums sums;
    if (arrived) sums = hash_bytes_twice(data, piece.bytes, piece.offset / sizeof(uint64_t));
    bool writing = false;
    {
      const std::lock_guard<std::mutex> lock(job.mutex);
      job.lost |= !arrived;
      job.sums.add(sums);
      writing = !only && !job.lost && job.error == 0;
      if (writing && !job.file.is_open()) job.error = create_temporary(job);
      writing &= job.error == 0;
    }
    if (only && arrived) process_only_piece(job, data, writer);
    if (writing) {
      const int error = write_at(job.file, data, piece.bytes, job.header.size() + piece.offset);
      const std::lock_guard<std::mutex> lock(job.mutex);
      if (job.error == 0) job.error = error;
    }
  } catch (const std::exception& error) {
    budget_.stop(failure_text(error));
    const std::lock_guard<std::mutex> lock(job.mutex);
    if (job.error == 0) job.error = ENOMEM;
  }
  piece.copy.reset();
  end_pieces(job, 1, writer);
}

void TensorStore::end_pieces(SaveJob& job, uint32_t count, JournalWriter* writer) {
  bool last = false;
  {
    const std::lock_guard<std::mutex> lock(job.mutex);
    job.pieces -= count;
    last = job.pieces == 0;
  }
  if (last) complete_pieces(job, writer);
}

// The tensor came in one piece: what is there already needs no temporary file.
void TensorStore::process_only_piece(SaveJob& job, const uint8_t* data, JournalWriter* writer) {
  job.set_hash(job.sums);
  if (link_known(job, writer) || !budget_.reserve(job.bytes)) return;
  job.reserved = job.bytes;
  int error = create_temporary(job);
  if (error == 0) error = write_at(job.file, data, job.bytes, job.header.size());
  conclude(job, error, writer);
}

void TensorStore::complete_pieces(SaveJob& job, JournalWriter* writer) {
  try {
    if (job.lost) {
      discard(job);
      record(job, writer, SAVE_SKIPPED, "its bytes could not be copied from the device");
    } else if (job.error != 0 || job.file.is_open()) {
      job.set_hash(job.sums);
      if (job.error == 0 && link_known(job, writer)) {
        discard(job);
      } else {
        conclude(job, job.error, writer);
      }
    }
  } catch (const std::exception& error) {
    budget_.stop(failure_text(error));
    discard(job);
  }
  finish(job);
}

void TensorStore::wait(SaveBatch* batch, JournalWriter* writer) {
  if (batch->is_done()) return;
  pool_.help_until([batch] { return batch->is_done(); }, writer);
}

}  // namespace aoti_debug
