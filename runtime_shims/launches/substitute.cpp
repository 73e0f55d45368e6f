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

// Copies elements to a device; those of a tensor with gaps together with what lies between them.
bool write_on_device(void* stream, const device::TensorView& view, const uint8_t* elements) {
  if (StridedReader(view).is_contiguous()) {
    return device::write_memory(stream, view.data, static_cast<size_t>(view.numel) * view.element_bytes, elements);
  }
  const Span span = span_of(view);
  const int64_t stride = 1;
  device::TensorView whole = view;
  whole.data = view.data + static_cast<uint64_t>(span.lowest * static_cast<int64_t>(view.element_bytes));
  whole.ndim = 1;
  whole.numel = span.elements;
  whole.sizes = &whole.numel;
  whole.strides = &stride;
  const size_t bytes = static_cast<size_t>(span.elements) * view.element_bytes;
  const std::unique_ptr<uint8_t[]> memory(new uint8_t[bytes]);
  uint64_t ticket = 0;
  if (!device::begin_copy(stream, whole, 0, bytes, memory.get(), &ticket) || !device::wait_copy(ticket)) return false;
  device::TensorView copy = view;
  copy.data = reinterpret_cast<uintptr_t>(memory.get()) + (view.data - whole.data);
  write_strided(copy, elements);
  return device::write_memory(stream, whole.data, bytes, memory.get());
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

bool makes_results(const AotiDebugSite& site) { return std::any_of(site.slots, site.slots + site.n_slots, is_result); }

void wait_while_exists(const std::string& path) {
  constexpr useconds_t kPause = 20000;
  const std::string waiting = path + ".waiting";
  replace_file(waiting, std::to_string(getpid()) + "\n");
  while (access(path.c_str(), F_OK) == 0) usleep(kPause);
  unlink(waiting.c_str());
}

}  // namespace

AotiDebugLaunchAction act_before(const LaunchState& launch) {
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
  if (!what.skips) return AOTI_DEBUG_RUN;
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
    const AotiDebugSlot* const end = site.slots + site.n_slots;
    const AotiDebugSlot* const slot = std::find_if(site.slots, end, [&from](const AotiDebugSlot& candidate) {
      return is_tensor_form(candidate.form) && from.argument == candidate.name;
    });
    TensorMeta meta;
    const bool is_tensor = slot != end && read_slot(*slot, values, true, &meta).tag == VALUE_TENSOR;
    const std::string reason = is_tensor ? replace(call, from, meta) : "it is no tensor here";
    if (reason.empty()) {
      run.substitutions->replaced.fetch_add(1);
    } else {
      run.note(NOTE_NOT_SUBSTITUTED,
               launch.substitution->id.name() + " " + from.argument + " was not replaced: " + reason, false);
    }
  }
}

}  // namespace aoti_debug
