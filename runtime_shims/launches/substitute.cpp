#include "substitute.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "device/device.h"
#include "launch_record.h"
#include "machine/file.h"
#include "run/substitutions.h"
#include "tensors/dtype.h"
#include "tensors/readable.h"
#include "tensors/rounding.h"
#include "tensors/strided.h"

namespace aoti_debug {
namespace {

std::string shape_text(int32_t type, const int64_t* sizes, size_t ndim) {
  std::string text = std::string(dtype(type).name) + "[";
  for (size_t d = 0; d < ndim; ++d) text += (d == 0 ? "" : ", ") + std::to_string(sizes[d]);
  return text + "]";
}

// Reads `bytes` bytes at `offset` of a file; returns why that is not possible.
std::string read_elements(const Replacement& from, uint64_t bytes, uint8_t* to) {
  File file;
  struct stat status;
  int error = open_file(from.path, &file);
  if (error == 0 && fstat(file.descriptor(), &status) != 0) error = errno;
  if (error != 0) return from.path + ": " + strerror(error);
  if (static_cast<uint64_t>(status.st_size) != from.offset + bytes) return from.path + " has another size";
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.descriptor(), to + done, bytes - done, static_cast<off_t>(from.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return from.path + ": " + (got == 0 ? "it has ended" : strerror(errno));
    done += static_cast<uint64_t>(got);
  }
  return "";
}

// Where the elements lie in memory, seen from element 0.
struct Span {
  int64_t lowest = 0;
  int64_t elements = 1;
};

Span span_of(const device::TensorView& view) {
  int64_t lowest = 0, highest = 0;
  for (uint32_t d = 0; d < view.ndim; ++d) {
    const int64_t reach = (view.sizes[d] - 1) * view.strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  return {lowest, highest - lowest + 1};
}

// Copies the memory of a tensor to the host, with what lies between its elements. False: the device did not give it.
bool copy_memory(void* stream, const device::TensorView& view, KeptBytes* copy) {
  const Span span = span_of(view);
  const int64_t stride = 1;
  device::TensorView whole = view;
  whole.data = view.data + static_cast<uint64_t>(span.lowest * static_cast<int64_t>(view.element_bytes));
  whole.ndim = 1;
  whole.numel = span.elements;
  whole.sizes = &whole.numel;
  whole.strides = &stride;
  copy->device_type = view.device_type;
  copy->address = whole.data;
  copy->bytes.resize(static_cast<size_t>(span.elements) * view.element_bytes);
  if (view.device_type == kDeviceCpu) {
    memcpy(copy->bytes.data(), reinterpret_cast<const void*>(whole.data), copy->bytes.size());
    return true;
  }
  uint64_t ticket = 0;
  return device::begin_copy(stream, whole, 0, copy->bytes.size(), copy->bytes.data(), &ticket) &&
         device::wait_copy(ticket);
}

// The tensor in a copy of its memory.
device::TensorView view_in(KeptBytes* copy, const device::TensorView& view) {
  device::TensorView inside = view;
  inside.data = reinterpret_cast<uintptr_t>(copy->bytes.data()) + (view.data - copy->address);
  return inside;
}

// Writes bytes where they were copied from; returns why that is not possible. Weights lie in memory of the host that
// the process may not write to, except through this file.
std::string write_back(void* stream, const KeptBytes& copy) {
  if (copy.device_type != kDeviceCpu) {
    const bool is_written = device::write_memory(stream, copy.address, copy.bytes.size(), copy.bytes.data());
    return is_written ? "" : "the device did not take it";
  }
  const File memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (!memory.is_open()) return std::string("/proc/self/mem: ") + strerror(errno);
  for (size_t done = 0; done < copy.bytes.size();) {
    const ssize_t put = pwrite(memory.descriptor(), copy.bytes.data() + done, copy.bytes.size() - done,
                               static_cast<off_t>(copy.address + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return std::string("its memory cannot be written: ") + strerror(errno);
    done += static_cast<size_t>(put);
  }
  return "";
}

// Copies elements to a device; those of a tensor with gaps together with what lies between them.
bool write_on_device(void* stream, const device::TensorView& view, const uint8_t* elements) {
  if (StridedReader(view).is_contiguous()) {
    return device::write_memory(stream, view.data, static_cast<size_t>(view.numel) * view.element_bytes, elements);
  }
  KeptBytes copy;
  if (!copy_memory(stream, view, &copy)) return false;
  write_strided(view_in(&copy, view), elements);
  return write_back(stream, copy).empty();
}

// Rounds the elements of a tensor; returns why they were not rounded.
std::string round(void* stream, const device::TensorView& view, int32_t dtype, KeptBytes* before) {
  if (!can_round(view.dtype, dtype)) {
    return "it is " + shape_text(view.dtype, view.sizes, view.ndim) + ", which is not rounded to " +
           aoti_debug::dtype(dtype).name;
  }
  if (view.numel == 0) return "";
  if (!copy_memory(stream, view, before)) return "the device did not give it";
  KeptBytes copy = *before;
  const device::TensorView inside = view_in(&copy, view);
  std::vector<uint8_t> elements(static_cast<size_t>(view.numel) * view.element_bytes);
  const uint8_t* const read = StridedReader(inside).read(0, view.numel, elements.data());
  if (read != elements.data()) memcpy(elements.data(), read, elements.size());
  round_elements(view.dtype, dtype, elements.data(), view.numel);
  write_strided(inside, elements.data());
  return write_back(stream, copy);
}

// Writes a replacement; returns why it was not written.
std::string replace(const CallState& call, const Replacement& from, const TensorMeta& meta) {
  if (const std::string reason = unreadable(meta); !reason.empty()) return reason;
  const device::TensorView view = view_of(meta);
  const bool same_sizes =
      from.sizes.size() == view.ndim && std::equal(from.sizes.begin(), from.sizes.end(), view.sizes);
  if (from.dtype != view.dtype || !same_sizes) {
    return "it is " + shape_text(view.dtype, view.sizes, view.ndim) + " here, and " +
           shape_text(from.dtype, from.sizes.data(), from.sizes.size()) + " was recorded";
  }
  const uint64_t bytes = static_cast<uint64_t>(view.numel) * view.element_bytes;
  const std::unique_ptr<uint8_t[]> elements(new uint8_t[bytes]);
  if (const std::string reason = read_elements(from, bytes, elements.get()); !reason.empty()) return reason;
  if (bytes == 0) return "";
  if (meta.device_type == kDeviceCpu) {
    write_strided(view, elements.get());
    return "";
  }
  return write_on_device(call.stream, view, elements.get()) ? "" : "the device did not take it";
}

// A tensor that a launch is passed in an argument; false: there is none.
bool tensor_of(const AotiDebugSite& site, const AotiDebugValue* values, const std::string& argument, bool after,
               TensorMeta* meta) {
  const AotiDebugSlot* const end = site.slots + site.n_slots;
  const AotiDebugSlot* const slot = std::find_if(site.slots, end, [&argument](const AotiDebugSlot& candidate) {
    return is_tensor_form(candidate.form) && argument == candidate.name;
  });
  return slot != end && read_slot(*slot, values, after, meta).tag == VALUE_TENSOR;
}

// Rounds what a launch reads, or what it has written.
void round_tensors(const LaunchState& launch, const AotiDebugValue* values, bool after) {
  Run& run = *launch.call->run;
  Substitution& what = *launch.substitution;
  for (const Rounding& rounding : what.roundings) {
    if (rounding.after != after) continue;
    TensorMeta meta;
    KeptBytes before;
    std::string reason = "it is no tensor here";
    if (tensor_of(*launch.site, values, rounding.argument, after, &meta)) reason = unreadable(meta);
    if (reason.empty()) reason = round(launch.call->stream, view_of(meta), rounding.dtype, &before);
    if (!reason.empty()) {
      run.note(NOTE_NOT_SUBSTITUTED, what.id.name() + " " + rounding.argument + " was not rounded: " + reason, false);
      continue;
    }
    run.substitutions->rounded.fetch_add(1);
    if (!after && !before.bytes.empty()) what.kept.push_back(std::move(before));
  }
}

bool is_written(const AotiDebugSlot& slot) {
  return is_result(slot) || slot.role == AOTI_DEBUG_ROLE_OUT || slot.role == AOTI_DEBUG_ROLE_INOUT ||
         slot.role == AOTI_DEBUG_ROLE_UNKNOWN;
}

// Gives memory back what it held before a launch, unless the launch has written to it.
void give_back(const LaunchState& launch, const AotiDebugValue* values) {
  const AotiDebugSite& site = *launch.site;
  std::vector<KeptBytes>& kept = launch.substitution->kept;
  for (uint32_t i = 0; i < site.n_slots; ++i) {
    TensorMeta meta;
    const AotiDebugSlot& slot = site.slots[i];
    if (!is_tensor_form(slot.form) || !is_written(slot)) continue;
    if (read_slot(slot, values, true, &meta).tag != VALUE_TENSOR || !is_readable(meta)) continue;
    const device::TensorView view = view_of(meta);
    const Span span = span_of(view);
    const auto bytes = static_cast<int64_t>(view.element_bytes);
    const uint64_t begin = view.data + static_cast<uint64_t>(span.lowest * bytes);
    const uint64_t end = begin + static_cast<uint64_t>(span.elements * bytes);
    const auto overlaps = [begin, end](const KeptBytes& memory) {
      return memory.address < end && begin < memory.address + memory.bytes.size();
    };
    kept.erase(std::remove_if(kept.begin(), kept.end(), overlaps), kept.end());
  }
  for (auto memory = kept.rbegin(); memory != kept.rend(); ++memory) {
    const std::string reason = write_back(launch.call->stream, *memory);
    if (reason.empty()) continue;
    launch.call->run->note(NOTE_NOT_SUBSTITUTED,
                           launch.substitution->id.name() + " keeps what it read as rounded: " + reason, false);
  }
  kept.clear();
}

bool makes_results(const AotiDebugSite& site) { return std::any_of(site.slots, site.slots + site.n_slots, is_result); }

void wait_while_exists(const std::string& path) {
  constexpr useconds_t kPause = 20000;
  const std::string waiting = path + ".waiting";
  replace_file(waiting, std::to_string(getpid()) + "\n");
  while (access(path.c_str(), F_OK) == 0) usleep(kPause);
  unlink(waiting.c_str());
}

}  // namespace

AotiDebugLaunchAction act_before(const LaunchState& launch, const AotiDebugValue* values) {
  Run& run = *launch.call->run;
  Substitution& what = *launch.substitution;
  what.reached.store(true);
  const std::string id = what.id.name();
  if (!what.wait_file.empty()) wait_while_exists(what.wait_file);
  if (what.stops) {
    run.note(NOTE_STOPPED, "stopped before launch " + id + " " + launch.site->kernel, false);
    run.stop("aoti-debug: stopped before launch " + id);
    return AOTI_DEBUG_STOP;
  }
  if (!what.skips) {
    round_tensors(launch, values, false);
    return AOTI_DEBUG_RUN;
  }
  if (makes_results(*launch.site)) {
    if (what.replacements.empty()) {
      run.note(NOTE_NOT_SUBSTITUTED, id + " was not skipped: it makes its results itself", false);
    }
    return AOTI_DEBUG_RUN;
  }
  run.substitutions->skipped.fetch_add(1);
  return AOTI_DEBUG_SKIP;
}

void replace_results(const LaunchState& launch, const AotiDebugValue* values) {
  const CallState& call = *launch.call;
  const AotiDebugSite& site = *launch.site;
  Run& run = *call.run;
  for (const Replacement& from : launch.substitution->replacements) {
    TensorMeta meta;
    const bool is_tensor = tensor_of(site, values, from.argument, true, &meta);
    const std::string reason = is_tensor ? replace(call, from, meta) : "it is no tensor here";
    if (reason.empty()) {
      run.substitutions->replaced.fetch_add(1);
    } else {
      run.note(NOTE_NOT_SUBSTITUTED,
               launch.substitution->id.name() + " " + from.argument + " was not replaced: " + reason, false);
    }
  }
  if (launch.substitution->roundings.empty()) return;
  give_back(launch, values);
  round_tensors(launch, values, true);
}

}  // namespace aoti_debug
