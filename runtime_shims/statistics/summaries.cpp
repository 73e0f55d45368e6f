#include "summaries.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace aoti_debug {
namespace {

uint64_t offset_of(uint64_t row) { return sizeof(SummariesHeader) + row * sizeof(SummaryRow); }

// Of the call, or of the replay.
uint32_t number_of(const SummaryRow& row) { return row.replay == 0 ? row.call : row.replay; }

}  // namespace

int Summaries::open(const std::string& run_directory, uint32_t every, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string path = run_directory + "/summaries.bin";
  if (const int error = create_file(path, &file_)) return error;
  memcpy(header_.magic, AOTI_DEBUG_SUMMARIES_MAGIC, sizeof(header_.magic));
  header_.version = AOTI_DEBUG_SUMMARIES_VERSION;
  header_.asked = every;
  header_.every = every;
  header_.most_rows = std::max<uint64_t>(bytes / sizeof(SummaryRow), 1);
  const int error = write_at(file_, &header_, sizeof(header_), 0);
  if (error == 0) {
    every_.store(every);
  } else {
    file_.close();
    unlink(path.c_str());
  }
  return error;
}

void Summaries::add(const SummaryRow& row) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!wants(number_of(row))) return;
  pending_.push_back(row);
  if (pending_.size() >= kRowsPerWrite) write();
}

void Summaries::miss(uint64_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  header_.n_missed += rows;
}

uint64_t Summaries::missed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return header_.n_missed;
}

void Summaries::flush() {
  const std::lock_guard<std::mutex> lock(mutex_);
  write();
}

std::string Summaries::take_news() {
  if (!has_news_.exchange(false)) return "";
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::move(news_);
}

// Rows are written before their number, so that a process may die at any time.
void Summaries::write() {
  if (pending_.empty() || !file_.is_open()) return;
  while (header_.n_rows + pending_.size() > header_.most_rows && header_.n_rows != 0) {
    const uint64_t before = header_.n_rows + pending_.size();
    thin_out();
    if (!file_.is_open() || header_.n_rows + pending_.size() == before) break;
  }
  const uint64_t room = header_.most_rows - std::min(header_.n_rows, header_.most_rows);
  const uint64_t taken = std::min<uint64_t>(pending_.size(), room);
  header_.n_lost += pending_.size() - taken;
  int error = write_at(file_, pending_.data(), taken * sizeof(SummaryRow), offset_of(header_.n_rows));
  pending_.clear();
  header_.n_rows += taken;
  if (error == 0) error = write_at(file_, &header_, sizeof(header_), 0);
  if (error != 0) stop(error);
}

// Doubles `every` and drops the rows of the calls in between.
void Summaries::thin_out() {
  header_.every *= 2;
  every_.store(header_.every);
  const auto dropped = [this](const SummaryRow& row) { return number_of(row) % header_.every != 0; };
  std::vector<SummaryRow> rows;
  uint64_t kept = 0;
  for (uint64_t first = 0; first < header_.n_rows; first += kRowsPerWrite) {
    rows.resize(std::min<uint64_t>(kRowsPerWrite, header_.n_rows - first));
    const size_t bytes = rows.size() * sizeof(SummaryRow);
    const ssize_t got = pread(file_.descriptor(), rows.data(), bytes, static_cast<off_t>(offset_of(first)));
    if (got != static_cast<ssize_t>(bytes)) return stop(got < 0 ? errno : EIO);
    rows.erase(std::remove_if(rows.begin(), rows.end(), dropped), rows.end());
    if (const int error = write_at(file_, rows.data(), rows.size() * sizeof(SummaryRow), offset_of(kept))) {
      return stop(error);
    }
    kept += rows.size();
  }
  header_.n_rows = kept;
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), dropped), pending_.end());
  if (const int error = resize(file_, offset_of(kept))) return stop(error);
  news_ = "summaries fill their room: now of one call, or replay, in " + std::to_string(header_.every);
  has_news_.store(true);
}

void Summaries::stop(int error) {
  every_.store(0);
  file_.close();
  news_ = std::string("no more summaries: summaries.bin: ") + strerror(error);
  has_news_.store(true);
}

}  // namespace aoti_debug
