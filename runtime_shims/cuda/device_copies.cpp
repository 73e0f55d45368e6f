// Copies between device memory and host memory (device.h); elements that do not lie behind one another are gathered
// first.
#include <algorithm>
#include <iterator>
#include <mutex>

#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

// Buffers for gathered elements: a large one for each of the first streams, then small ones, 128 MiB in all.
struct BufferSize {
  size_t bytes;
  size_t most_in_all;
};
constexpr BufferSize kGatherBuffers[] = {{size_t{16} << 20, size_t{96} << 20}, {size_t{1} << 20, size_t{128} << 20}};

constexpr const char* kGatherKernels[] = {"aoti_debug_gather_1", "aoti_debug_gather_2", "aoti_debug_gather_4",
                                          "aoti_debug_gather_8", "aoti_debug_gather_16"};

// The stream's buffer for gathered elements. The caller holds the lock.
bool has_gather_buffer(StreamState* stream) {
  if (stream->gather != 0) return true;
  for (const BufferSize& size : kGatherBuffers) {
    if (state().gather_bytes + size.bytes > size.most_in_all) continue;
    stream->gather = allocate(size.bytes);
    if (stream->gather == 0) continue;
    stream->gather_bytes = size.bytes;
    state().gather_bytes += size.bytes;
    return true;
  }
  return false;
}

// Gathers a buffer full at a time; the stream keeps each copy before the next gathering. The caller holds the lock.
bool gather(CUstream stream, StreamState* mine, const device::TensorView& view, const Layout& layout, size_t first_byte,
            size_t bytes, char* host) {
  if (unreadable(view, *mine)[0] != '\0' || !has_gather_buffer(mine)) return false;
  const Kernels::Kernel& kernel = state().kernels.get("Gather", by_size(kGatherKernels, view.element_bytes));
  if (kernel.function == nullptr) return false;
  const size_t end = first_byte + bytes;
  while (first_byte < end) {
    const size_t skip = first_byte % view.element_bytes;
    GatherJob job{layout.elements, {}, first_byte / view.element_bytes, 0, mine->gather};
    std::copy(std::begin(layout.dims), std::end(layout.dims), job.dims);
    const size_t part = std::min(end - first_byte + skip, mine->gather_bytes);
    job.count = (part + view.element_bytes - 1) / view.element_bytes;
    const uint64_t chunks = (part + kChunkBytes - 1) / kChunkBytes;
    const uint64_t blocks = std::min<uint64_t>(blocks_of(chunks, 2), uint64_t{mine->most_blocks} * 2);
    const Grid grid{static_cast<uint32_t>(blocks), kBlockThreads};
    if (!launch_kernel(kernel.function, grid, stream, &job)) return false;
    if (cuMemcpyDtoHAsync(host, mine->gather + skip, part - skip, stream) != CUDA_SUCCESS) return false;
    first_byte += part - skip;
    host += part - skip;
  }
  return true;
}

bool copy(CUstream stream, const device::TensorView& view, size_t first_byte, size_t bytes, char* host,
          uint64_t* ticket) {
  *ticket = 0;
  if (bytes == 0) return true;
  const CUcontext context = context_of(stream);
  const WithContext own(context);
  const uint64_t total = static_cast<uint64_t>(view.numel) * view.element_bytes;
  Layout layout{};
  if (context == nullptr || first_byte > total || bytes > total - first_byte || !describe(view, &layout)) return false;
  const std::lock_guard<std::mutex> lock(state().mutex);
  StreamState& mine = stream_state(context, stream);
  const bool enqueued = is_contiguous(layout, view.element_bytes)
                            ? cuMemcpyDtoHAsync(host, view.data + first_byte, bytes, stream) == CUDA_SUCCESS
                            : gather(stream, &mine, view, layout, first_byte, bytes, host);
  if (!enqueued) return false;
  *ticket = state().copies.add(stream);
  return *ticket != 0;
}

}  // namespace
}  // namespace aoti_debug::cuda

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

bool begin_copy(void* stream, const TensorView& view, size_t first_byte, size_t bytes, void* host, uint64_t* ticket) {
  const auto body = [&] {
    return copy(static_cast<CUstream>(stream), view, first_byte, bytes, static_cast<char*>(host), ticket);
  };
  if (attempt(body, false)) return true;
  synchronize(static_cast<CUstream>(stream));  // a part that was enqueued does not arrive after this call
  return false;
}

bool wait_copy(uint64_t ticket) {
  if (ticket == 0) return true;
  Copies::Copy copy{};
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (!state().copies.remove(ticket, &copy)) return false;
  }
  if (!wait(copy)) return false;
  const auto body = [&] {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().copies.give_back(copy);
    return true;
  };
  attempt(body, false);  // at worst an event is lost
  return true;
}

bool write_memory(void* stream, uint64_t address, size_t bytes, const void* host) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  if (cuMemcpyHtoDAsync(address, host, bytes, static_cast<CUstream>(stream)) != CUDA_SUCCESS) return false;
  return synchronize(static_cast<CUstream>(stream));
}

void* allocate_staging(size_t bytes) {
  const WithContext current(current_or_known_context());
  return allocate_pinned(bytes);
}

void free_staging(void* memory) {
  if (memory == nullptr) return;
  const RelaxedCapture relaxed;
  cuMemFreeHost(memory);  // fails where the driver has gone, and the memory with it
}

}  // namespace aoti_debug::device
