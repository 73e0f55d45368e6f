#include "launch_record.h"

#include <string.h>

#include <algorithm>

namespace aoti_debug {
namespace {

constexpr uint32_t kMaxFaultText = 8192;

uint64_t handle_at(uint64_t address, int64_t element = 0) {
  uint64_t handle;
  memcpy(&handle, reinterpret_cast<const uint8_t*>(address) + element * static_cast<int64_t>(sizeof(handle)),
         sizeof(handle));
  return handle;
}

SlotReading tensor(uint64_t handle, TensorMeta* meta) {
  if (handle == 0) return {VALUE_NULL, 0, 0};
  switch (read_tensor_meta(handle, meta)) {
    case TensorState::kDefined:
      return {VALUE_TENSOR, 0, meta->data};
    case TensorState::kUndefined:
      return {VALUE_UNDEFINED, 0, 0};
    case TensorState::kUnknown:
      break;
  }
  return {VALUE_OPAQUE, 0, 0};
}

template <class From>
uint64_t extended(uint64_t address) {
  From value;
  memcpy(&value, reinterpret_cast<const void*>(address), sizeof(value));
  if constexpr (std::is_floating_point_v<From>) {
    const auto wide = static_cast<double>(value);
    uint64_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    return bits;
  } else {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

// The number of C type `type` at an address, as AotiDebugValue::bits.
bool number_at(uint64_t address, uint8_t type, uint64_t* bits) {
  switch (type) {
    case AOTI_DEBUG_BOOL:
      *bits = extended<uint8_t>(address) != 0;
      return true;
    case AOTI_DEBUG_I8:
      *bits = extended<int8_t>(address);
      return true;
    case AOTI_DEBUG_I16:
      *bits = extended<int16_t>(address);
      return true;
    case AOTI_DEBUG_I32:
      *bits = extended<int32_t>(address);
      return true;
    case AOTI_DEBUG_U8:
      *bits = extended<uint8_t>(address);
      return true;
    case AOTI_DEBUG_U16:
      *bits = extended<uint16_t>(address);
      return true;
    case AOTI_DEBUG_U32:
      *bits = extended<uint32_t>(address);
      return true;
    case AOTI_DEBUG_F32:
      *bits = extended<float>(address);
      return true;
    case AOTI_DEBUG_I64:
    case AOTI_DEBUG_U64:
    case AOTI_DEBUG_F64:
    case AOTI_DEBUG_ADDRESS:
    case AOTI_DEBUG_HANDLE:
      *bits = extended<uint64_t>(address);
      return true;
    default:
      return false;
  }
}

SlotReading number(uint64_t address, uint8_t type) {
  if (address == 0) return {VALUE_NULL, 0, 0};
  SlotReading reading{VALUE_NUMBER, type, 0};
  if (!number_at(address, type, &reading.bits)) reading.tag = VALUE_OPAQUE;
  return reading;
}

SlotReading passed_number(const AotiDebugValue& value) {
  return {VALUE_NUMBER, static_cast<uint8_t>(value.type), value.bits};
}

SlotValue slot_value(const SlotReading& reading, uint16_t slot, uint32_t layout) {
  return {static_cast<uint8_t>(reading.tag), reading.type, slot, layout, reading.bits};
}

// Records the layouts of tensors that the block has not yet: in the next one where it has no room for them and for a
// record of `payload` bytes after them.
__attribute__((noinline)) void record_layouts(ThreadState& thread, uint32_t* memos, uint32_t count, uint32_t payload,
                                              uint64_t now_ns) {
  SlotValue* const values = thread.values.data();
  for (int attempt = 0; attempt < 2; ++attempt) {
    bool complete = true;
    for (uint32_t i = 0; i < count && complete; ++i) {
      SlotValue& value = values[i];
      if (value.tag != VALUE_TENSOR) continue;
      value.layout = thread.journal.layout(thread.tensors[i], payload, now_ns, &memos[value.slot]);
      complete = value.layout != JournalWriter::kNoLayout;
      if (!complete && attempt == 1) {
        for (; i < count; ++i) {
          if (values[i].tag == VALUE_TENSOR) values[i].tag = VALUE_OPAQUE;
        }
      }
    }
    if (complete || attempt == 1 || !thread.journal.next_block()) break;
  }
}

// Fills ThreadState::values with what `sees(slot, meta)` finds in each slot that `takes(slot)`, and records the layouts
// behind them in the block that the record of `fixed_bytes` and these values goes to. Returns how many there are.
template <class Takes, class Sees>
uint32_t collect(ThreadState& thread, const AotiDebugSite& site, size_t fixed_bytes, uint64_t now_ns,
                 const Takes& takes, const Sees& sees) {
  thread.recorded = nullptr;
  constexpr uint32_t kLayoutRoom = 8192;  // of a block that is otherwise full of values
  const auto most = static_cast<uint32_t>((JournalWriter::kMaxPayload - kLayoutRoom - fixed_bytes) / sizeof(SlotValue));
  uint32_t* const memos = thread.memo_of(site).layouts.get();
  SlotValue* value = thread.values.data();
  TensorMeta* meta = thread.tensors.data();
  uint32_t count = 0;
  bool is_known = true;
  for (uint32_t i = 0; i < site.n_slots && count < most; ++i) {
    if (!takes(site.slots[i])) continue;
    const SlotReading reading = sees(site.slots[i], meta);
    uint32_t layout = 0;
    if (reading.tag == VALUE_TENSOR) {
      layout = thread.journal.known_layout(*meta, memos[i]);
      is_known &= layout != JournalWriter::kNoLayout;
    }
    *value++ = slot_value(reading, static_cast<uint16_t>(i), layout);
    ++meta;
    ++count;
  }
  const auto payload = static_cast<uint32_t>(fixed_bytes + count * sizeof(SlotValue));
  if (!is_known || !thread.journal.has_room(payload)) record_layouts(thread, memos, count, payload, now_ns);
  return count;
}

template <class Record>
void write(ThreadState& thread, RecordType type, uint16_t flags, uint64_t now_ns, const Record& record,
           const void* tail = nullptr, size_t tail_bytes = 0) {
  uint8_t* to = thread.journal.start(static_cast<uint32_t>(sizeof(record) + tail_bytes));
  if (to == nullptr) return;
  memcpy(to, &record, sizeof(record));
  if (tail_bytes != 0) memcpy(to + sizeof(record), tail, tail_bytes);
  thread.journal.finish(type, flags, now_ns);
}

}  // namespace

uint64_t tensor_handle(const AotiDebugSlot& slot, const AotiDebugValue* values) {
  const AotiDebugValue& value = values[slot.value];
  if (value.bits == 0) return 0;
  switch (slot.form) {
    case AOTI_DEBUG_TENSOR:
      return value.bits;
    case AOTI_DEBUG_OUTPUT_SLOT:
    case AOTI_DEBUG_OPTIONAL:
      return handle_at(value.bits);
    case AOTI_DEBUG_LIST:
      return handle_at(value.bits, slot.element);
    case AOTI_DEBUG_OPTIONAL_LIST: {
      const uint64_t address = handle_at(value.bits, slot.element);
      return address == 0 ? 0 : handle_at(address);
    }
    case AOTI_DEBUG_POINTER:
      return value.type == AOTI_DEBUG_HANDLE ? value.bits : 0;
    default:
      return 0;
  }
}

SlotReading read_slot(const AotiDebugSlot& slot, const AotiDebugValue* values, bool after, TensorMeta* meta) {
  const AotiDebugValue& value = values[slot.value];
  const bool is_address = value.type == AOTI_DEBUG_ADDRESS || value.type == AOTI_DEBUG_HANDLE;
  switch (slot.form) {
    case AOTI_DEBUG_TENSOR:
      return is_address ? tensor(value.bits, meta) : SlotReading{VALUE_OPAQUE, 0, 0};
    case AOTI_DEBUG_OUTPUT_SLOT:
      if (value.bits == 0) return {VALUE_NULL, 0, 0};
      return after ? tensor(handle_at(value.bits), meta) : SlotReading{VALUE_UNSET, 0, 0};
    case AOTI_DEBUG_OPTIONAL:
      return value.bits == 0 ? SlotReading{VALUE_NULL, 0, 0} : tensor(handle_at(value.bits), meta);
    case AOTI_DEBUG_LIST:
      return value.bits == 0 ? SlotReading{VALUE_NULL, 0, 0} : tensor(handle_at(value.bits, slot.element), meta);
    case AOTI_DEBUG_OPTIONAL_LIST: {
      const uint64_t address = value.bits == 0 ? 0 : handle_at(value.bits, slot.element);
      return address == 0 ? SlotReading{VALUE_NULL, 0, 0} : tensor(handle_at(address), meta);
    }
    case AOTI_DEBUG_POINTER:
      if (value.type == AOTI_DEBUG_HANDLE) return tensor(value.bits, meta);
      return {VALUE_NUMBER, AOTI_DEBUG_ADDRESS, value.bits};
    case AOTI_DEBUG_SCALAR:
      if (value.type == AOTI_DEBUG_NONE) return {VALUE_OPAQUE, 0, 0};
      return passed_number(value);
    case AOTI_DEBUG_SCALAR_REF:
      if (value.bits != 0 && slot.role == AOTI_DEBUG_ROLE_OUT && !after) return {VALUE_UNSET, 0, 0};
      return number(value.bits, slot.type);
    case AOTI_DEBUG_INTS:
      return value.bits == 0 ? SlotReading{VALUE_NULL, 0, 0}
                             : SlotReading{VALUE_NUMBER, AOTI_DEBUG_I64, handle_at(value.bits, slot.element)};
    case AOTI_DEBUG_STRING:
      return {value.bits == 0 ? VALUE_NULL : VALUE_TEXT, 0, 0};
    default:
      return {VALUE_OPAQUE, 0, 0};
  }
}

void record_clock(const CallState& call) {
  const uint64_t now_ns = call.run->journal.now_ns();
  write(*call.thread, RECORD_CLOCK, 0, now_ns, WallClock{Clock::unix_ns()});
}

bool read_tensor_slot(const LaunchState& launch, uint16_t slot, const AotiDebugValue* values, bool after,
                      TensorMeta* meta) {
  const ThreadState& thread = *launch.call->thread;
  const AotiDebugSlot& description = launch.site->slots[slot];
  const bool is_same = !after || (launch.site->grid != 0 && description.form != AOTI_DEBUG_OUTPUT_SLOT);
  if (thread.recorded == &launch && is_same && thread.values[slot].tag == VALUE_TENSOR) {
    *meta = thread.tensors[slot];
    return true;
  }
  return read_slot(description, values, after, meta).tag == VALUE_TENSOR;
}

void record_call_begin(CallState& call, bool capturing, uint64_t now_ns) {
  CallBegin record{};
  record.call = call.call;
  record.kind = call.kind;
  record.level = call.level;
  record.stream_slot = call.stream_slot;
  record.model = reinterpret_cast<uintptr_t>(call.model);
  record.stream = reinterpret_cast<uintptr_t>(call.stream);
  call.run->journal.call_begun();
  write(*call.thread, RECORD_CALL_BEGIN, capturing ? CALL_CAPTURING : 0, now_ns, record);
}

void record_call_end(const CallState& call, bool failed, uint64_t now_ns) {
  CallEnd record{};
  record.call = call.call;
  record.kind = call.kind;
  record.failed = failed;
  record.launches = call.launches;
  call.run->journal.call_ended();
  write(*call.thread, RECORD_CALL_END, 0, now_ns, record);
}

namespace {

// Reads what the launch has made, for its LaunchEnd; apart from the other launches' way.
__attribute__((noinline)) uint16_t collect_results(const LaunchState& launch, const AotiDebugValue* values,
                                                   int32_t status, uint64_t now_ns) {
  const bool after = status == 0;
  const auto sees = [values, after](const AotiDebugSlot& slot, TensorMeta* meta) {
    return read_slot(slot, values, after, meta);
  };
  return static_cast<uint16_t>(collect(*launch.call->thread, *launch.site, sizeof(LaunchEnd), now_ns, is_result, sees));
}

}  // namespace

uint32_t record_launch_begin(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values) {
  const CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  const auto takes = [n_values](const AotiDebugSlot& slot) { return slot.value < n_values; };
  struct {
    uint64_t handle;
    const TensorMeta* meta;
  } last{0, nullptr};  // the tensor that was read last: a product of a matrix with itself reads it once
  const auto sees = [values, &last](const AotiDebugSlot& slot, TensorMeta* meta) -> SlotReading {
    const AotiDebugValue& value = values[slot.value];  // the two forms of nearly all arguments
    if (slot.form == AOTI_DEBUG_SCALAR && value.type != AOTI_DEBUG_NONE) return passed_number(value);
    if (slot.form != AOTI_DEBUG_TENSOR || value.type != AOTI_DEBUG_HANDLE) return read_slot(slot, values, false, meta);
    if (value.bits == last.handle && last.meta != nullptr) {
      *meta = *last.meta;
      return {VALUE_TENSOR, 0, meta->data};
    }
    const SlotReading reading = tensor(value.bits, meta);
    if (reading.tag == VALUE_TENSOR) last = {value.bits, meta};
    return reading;
  };
  LaunchBegin record;
  record.n_values = collect(thread, *launch.site, sizeof(record), launch.begin_ns, takes, sees);
  record.call = call.call;
  record.kind = call.kind;
  record.n_loops = static_cast<uint8_t>(call.loop_counts().n);
  record.stream_slot = call.stream_slot;
  record.launch = launch.launch;
  record.site = launch.site->id;
  record.sequence = launch.sequence;
  memcpy(record.loops, call.loops, sizeof(record.loops));
  write(thread, RECORD_LAUNCH_BEGIN, 0, launch.begin_ns, record, thread.values.data(),
        record.n_values * sizeof(SlotValue));
  if (record.n_values == launch.site->n_slots) thread.recorded = &launch;
  return record.n_values;
}

void record_launch_end(const LaunchState& launch, const AotiDebugValue* values, int32_t status, bool crumb,
                       uint64_t now_ns) {
  const CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  const AotiDebugSite& site = *launch.site;
  LaunchEnd record;
  record.n_values = thread.memo_of(site).has_results ? collect_results(launch, values, status, now_ns) : uint16_t{0};
  record.call = call.call;
  record.launch = launch.launch;
  record.status = status;
  record.kind = call.kind;
  record.reserved = 0;
  const bool started = site.grid == 0 || launch.grid_seen;
  const auto flags = static_cast<uint16_t>((started ? 0 : LAUNCH_NOT_STARTED) | (crumb ? LAUNCH_CRUMB : 0));
  write(thread, RECORD_LAUNCH_END, flags, now_ns, record, thread.values.data(), record.n_values * sizeof(SlotValue));
  thread.journal.fetch_ahead();
}

void record_grid(const LaunchState& launch, const AotiDebugKernel& kernel, const uint32_t grid[3], uint32_t num_warps,
                 uint32_t shared_bytes, void* const* args) {
  ThreadState& thread = *launch.call->thread;
  constexpr uint32_t kMaxArguments = (JournalWriter::kMaxPayload - sizeof(Grid)) / sizeof(uint64_t);
  Grid record{};
  record.call = launch.call->call;
  record.launch = launch.launch;
  record.kernel = kernel.id;
  record.kind = launch.call->kind;
  memcpy(record.grid, grid, sizeof(record.grid));
  record.num_warps = num_warps;
  record.shared_bytes = shared_bytes;
  record.n_arguments = args == nullptr ? 0 : std::min(kernel.n_types, kMaxArguments);
  const size_t tail_bytes = record.n_arguments * sizeof(uint64_t);
  uint8_t* to = thread.journal.start(static_cast<uint32_t>(sizeof(record) + tail_bytes));
  if (to == nullptr) return;
  memcpy(to, &record, sizeof(record));
  for (uint32_t i = 0; i < record.n_arguments; ++i) {
    uint64_t bits = 0;
    if (args[i] != nullptr) number_at(reinterpret_cast<uintptr_t>(args[i]), kernel.types[i], &bits);
    memcpy(to + sizeof(record) + i * sizeof(bits), &bits, sizeof(bits));
  }
  thread.journal.finish(RECORD_GRID, 0, launch.begin_ns);
}

void record_fault(CallState& call, const LaunchState* launch, FaultDomain domain, int32_t code, const char* text) {
  call.run->faulted.store(true);
  Fault record{};
  record.call = call.call;
  record.launch = launch == nullptr ? 0 : launch->launch;
  record.kind = call.kind;
  record.in_launch = launch != nullptr;
  record.domain = domain;
  record.code = code;
  record.text_bytes = static_cast<uint32_t>(strnlen(text, kMaxFaultText));
  write(*call.thread, RECORD_FAULT, 0, call.run->journal.now_ns(), record, text, record.text_bytes);
}

}  // namespace aoti_debug
