#include "statistics_record.h"

#include <string.h>

namespace aoti_debug {
namespace {

uint32_t layout_id(JournalWriter& journal, const TensorMeta& meta, uint32_t payload, uint64_t now_ns) {
  uint32_t memo = 0;
  const uint32_t id = journal.layout(meta, payload, now_ns, &memo);
  if (id != JournalWriter::kNoLayout || !journal.next_block()) return id;
  return journal.layout(meta, payload, now_ns, &memo);
}

// A record that begins with `head_bytes` of `head`.
void write_sample(ThreadState& thread, RecordType type, const void* head, uint32_t head_bytes,
                  const TensorSample& sample, uint64_t now_ns) {
  const bool measured = sample.state == TensorSample::State::kMeasured;
  const bool unread = sample.state == TensorSample::State::kUnread;
  TensorStats record{};
  if (measured) record = sample.stats;
  record.call = sample.id.call;
  record.launch = sample.id.launch;
  record.kind = sample.id.kind;
  record.slot = sample.slot;
  record.phase = static_cast<uint8_t>(sample.phase);
  record.numel = static_cast<uint64_t>(element_count(sample.meta));
  const void* tail = unread ? static_cast<const void*>(sample.text.data()) : sample.values.data();
  record.value_bytes = static_cast<uint32_t>(unread ? sample.text.size() : sample.values.size());
  const uint32_t payload = head_bytes + static_cast<uint32_t>(sizeof(record)) + record.value_bytes;
  record.layout = layout_id(thread.journal, sample.meta, payload, now_ns);
  uint8_t* to = thread.journal.start(payload);
  if (to == nullptr) return;
  if (head_bytes != 0) memcpy(to, head, head_bytes);
  to += head_bytes;
  memcpy(to, &record, sizeof(record));
  if (record.value_bytes != 0) memcpy(to + sizeof(record), tail, record.value_bytes);
  const uint16_t as_read = sample.wanted == device::StatsWanted::kHash ? STATS_HASH_ONLY : 0;
  const uint16_t flags = measured ? as_read : unread ? uint16_t{STATS_SKIPPED} : uint16_t{STATS_UNINITIALISED};
  thread.journal.finish(type, flags, now_ns);
}

}  // namespace

void record_statistics(ThreadState& thread, const TensorSample& sample, uint64_t now_ns) {
  write_sample(thread, RECORD_TENSOR_STATS, nullptr, 0, sample, now_ns);
}

void record_replay_statistics(ThreadState& thread, const ReplayStats& replay, const TensorSample& sample,
                              uint64_t now_ns) {
  write_sample(thread, RECORD_REPLAY_STATS, &replay, sizeof(replay), sample, now_ns);
}

}  // namespace aoti_debug
