// What outlives the process on a device (device.h): the words of breadcrumbs, and the memory of the flight recorder.
#include "stream_state.h"

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

bool register_crumbs(void* base, size_t bytes) {
  return attempt([&] { return state().crumbs.open(base, bytes); }, false);
}

bool write_crumb(void* stream, size_t offset, uint32_t value) {
  return state().crumbs.write(static_cast<CUstream>(stream), offset, value);
}

bool register_flight(void* base, size_t bytes) {
  return attempt([&] { return state().flight.open(base, bytes); }, false);
}

bool unregister_flight() {
  const WithContext current(current_or_known_context());
  return attempt([] { return state().flight.close(); }, false);
}

bool write_flight(void* stream, size_t offset, uint32_t value) {
  return state().flight.write(static_cast<CUstream>(stream), offset, value);
}

bool copy_to_flight(void* stream, uint64_t address, size_t bytes, void* host) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  return cuMemcpyDtoHAsync(host, address, bytes, static_cast<CUstream>(stream)) == CUDA_SUCCESS;
}

}  // namespace aoti_debug::device
