#include "flight_recorder.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "device/device.h"

namespace aoti_debug {
namespace {

constexpr uint64_t kDefaultBytes = uint64_t{1} << 30;
constexpr uint64_t kGrowth = uint64_t{16} << 20;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kHostShare = 16;        // of a device's recorder, a sixteenth is for tensors in host memory
constexpr uint32_t kInFlight = 4096;       // more launches than a stream holds
constexpr uint32_t kTensorsPerLaunch = 8;  // on average
constexpr size_t kMaxTensors = 2048;       // of one launch

uint64_t aligned(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

uint64_t default_bytes() { return std::min(kDefaultBytes, SharedFile::free_bytes() / 4); }

}  // namespace

std::string Flight::open(const std::string& run_directory, uint64_t keep, std::optional<uint64_t> bytes, bool on_device,
                         const std::string& weights) {
  FlightHeader described{};
  described.version = AOTI_DEBUG_FLIGHT_VERSION;
  described.pid = static_cast<uint32_t>(getpid());
  described.keep = static_cast<uint32_t>(keep);
  described.n_launches = static_cast<uint32_t>(std::max<uint64_t>(on_device ? kInFlight : 64, 2 * keep));
  described.n_tensors = std::max<uint32_t>(described.n_launches * kTensorsPerLaunch, 2 * kMaxTensors);
  described.weights_bytes = static_cast<uint32_t>(weights.size());
  const uint64_t tables =
      sizeof(FlightHeader) + described.n_launches * sizeof(FlightLaunch) + described.n_tensors * sizeof(FlightTensor);
  described.data = aligned(tables + weights.size(), SharedFile::kPageBytes);
  described.data_bytes = aligned(bytes.value_or(default_bytes()), SharedFile::kPageBytes);
  described.host_bytes =
      on_device ? aligned(described.data_bytes / kHostShare, SharedFile::kPageBytes) : described.data_bytes;
  if (described.data_bytes == 0) return bytes.has_value() ? "AOTI_DEBUG_FLIGHT_BYTES is 0" : "/dev/shm has no room";
  const uint64_t all = described.data + described.data_bytes;
  std::string reason = shared_.create(run_directory, "flight.bin", all, on_device ? all : described.data);
  if (reason.empty() && on_device && !device::register_flight(shared_.base(), all)) {
    reason = "the device cannot write to shared memory";
    shared_.discard();
  }
  if (!reason.empty()) return reason;
  if (on_device) {
    // What a device has yet to do is in the ring for longer than the last launches.
    host_ = FlightRing(0, described.host_bytes, described.n_launches);
    device_ = FlightRing(described.host_bytes, described.data_bytes, described.n_launches);
  } else {
    host_ = FlightRing(0, 0, keep);
  }
  *header() = described;
  memcpy(shared_.base() + tables, weights.data(), weights.size());
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(header()->magic, AOTI_DEBUG_FLIGHT_MAGIC, sizeof(described.magic));
  open_.store(true, std::memory_order_release);
  return "";
}

FlightLaunch* Flight::launch_at(uint64_t generation) const {
  auto* entries = reinterpret_cast<FlightLaunch*>(shared_.base() + sizeof(FlightHeader));
  return entries + generation % header()->n_launches;
}

FlightTensor* Flight::tensor_at(uint64_t index) const {
  const size_t begin = sizeof(FlightHeader) + header()->n_launches * sizeof(FlightLaunch);
  return reinterpret_cast<FlightTensor*>(shared_.base() + begin) + index % header()->n_tensors;
}

bool Flight::has_arrived(uint64_t generation) const {
  const FlightLaunch* entry = launch_at(generation);
  if (generation == 0 || entry->generation != generation) return true;  // else its entry would not be another's
  return __atomic_load_n(&entry->arrived, __ATOMIC_ACQUIRE) == static_cast<uint32_t>(generation);
}

bool Flight::all_arrived() const {
  for (uint32_t i = 0; i < header()->n_launches; ++i) {
    if (!has_arrived(launch_at(i)->generation)) return false;
  }
  return true;
}

void Flight::close() {
  if (!open_.exchange(false)) return;
  if (device_.capacity() != 0 && !(all_arrived() && device::unregister_flight())) return shared_.remove();
  shared_.discard();
}

bool Flight::grow_host(uint64_t bytes) {
  const uint64_t limit = device_.capacity() != 0 ? host_.end() : header()->host_bytes;
  for (const uint64_t step :
       {std::max(aligned(bytes, SharedFile::kPageBytes), kGrowth), aligned(bytes, SharedFile::kPageBytes)}) {
    const uint64_t end = std::min(limit, host_.end() + step);
    if (end == host_.end()) return false;
    if (shared_.allocate(header()->data + end) != 0) continue;
    host_.grow(end);
    return true;
  }
  return false;
}

std::optional<FlightRoom> Flight::room(FlightRing& ring, uint64_t bytes, uint64_t generation,
                                       const FlightOrder& order) {
  const auto arrived = [this](uint64_t other) { return has_arrived(other); };
  std::optional<FlightRoom> found = ring.spare(bytes, generation, order, arrived);
  while (!found.has_value() && &ring == &host_ && grow_host(bytes)) {
    found = ring.spare(bytes, generation, order, arrived);
  }
  return found.has_value() ? found : ring.take(bytes, generation, order, arrived);
}

// The smallest tensors come first: an index tells more about a fault than a table of weights.
Flight::Plan Flight::plan(uint64_t generation, const FlightOrder& order, const std::vector<FlightSource>& sources) {
  Plan plan{
      std::vector<FlightStatus>(sources.size(), FLIGHT_UNREADABLE), std::vector<uint64_t>(sources.size(), 0), {}, {}};
  std::vector<size_t> by_size(sources.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return sources[a].bytes < sources[b].bytes; });
  const uint64_t limits[] = {header()->host_bytes, header()->data_bytes - header()->host_bytes};
  uint64_t totals[] = {0, 0};
  for (const size_t i : by_size) {
    const FlightSource& source = sources[i];
    if (!source.readable) continue;
    if (source.referred) {
      plan.status[i] = FLIGHT_REFERRED;
      continue;
    }
    uint64_t& total = totals[source.on_device ? 1 : 0];
    plan.status[i] = FLIGHT_TOO_LARGE;
    if (source.bytes > limits[source.on_device ? 1 : 0] - total) continue;
    plan.status[i] = FLIGHT_KEPT;
    plan.begin[i] = total;
    total = std::min(aligned(total + source.bytes, kAlignment), limits[source.on_device ? 1 : 0]);
  }
  if (totals[0] != 0) plan.host = room(host_, totals[0], generation, order);
  if (totals[1] != 0) plan.device = room(device_, totals[1], generation, order);
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::optional<FlightRoom>& room = sources[i].on_device ? plan.device : plan.host;
    if (plan.status[i] != FLIGHT_KEPT || sources[i].bytes == 0) continue;
    if (room.has_value()) {
      plan.begin[i] += room->begin;
    } else {
      const bool full = !sources[i].on_device && host_.capacity() < totals[0];
      plan.status[i] = full ? FLIGHT_FULL : FLIGHT_BUSY;
    }
  }
  return plan;
}

FlightLaunch* Flight::publish(uint64_t generation, const LaunchId& id, const FlightOrder& order, const Plan& plan,
                              const std::vector<FlightSource>& sources) {
  FlightLaunch* entry = launch_at(generation);
  const size_t count = std::min(sources.size(), kMaxTensors);
  FlightLaunch described{};
  described.arrived = entry->arrived;  // of an earlier launch, or 0
  described.thread = order.thread;
  described.call = id.call;
  described.launch = id.launch;
  described.kind = id.kind;
  described.stream = order.stream;
  described.model = order.model;
  if (plan.host.has_value()) {
    described.host_begin = plan.host->begin;
    described.host_end = plan.host->end;
  }
  if (plan.device.has_value()) {
    described.device_begin = plan.device->begin;
    described.device_end = plan.device->end;
  }
  described.first = static_cast<uint32_t>(tensors_ % header()->n_tensors);
  described.n_tensors = static_cast<uint32_t>(count);
  described.n_left_out = static_cast<uint32_t>(sources.size() - count);
  __atomic_store_n(&entry->generation, uint64_t{0}, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (size_t i = 0; i < count; ++i) {
    *tensor_at(tensors_ + i) = {static_cast<uint32_t>(generation),
                                sources[i].slot,
                                static_cast<uint8_t>(plan.status[i]),
                                0,
                                sources[i].address,
                                plan.begin[i],
                                sources[i].bytes,
                                sources[i].place,
                                {sources[i].hash[0], sources[i].hash[1]}};
  }
  tensors_ += count;
  *entry = described;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  __atomic_store_n(&entry->generation, generation, __ATOMIC_RELAXED);
  // What follows overwrites the bytes of other launches: from here on they are this one's.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return entry;
}

void Flight::record(const LaunchId& id, void* stream, const FlightOrder& order,
                    const std::vector<FlightSource>& sources) {
  Plan plan;
  FlightLaunch* entry = nullptr;
  uint64_t generation = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // The device has thousands of launches yet to do: this one is not kept.
    if (!has_arrived(launch_at(generation_ + 1)->generation)) return;
    generation = ++generation_;
    plan = this->plan(generation, order, sources);
    entry = publish(generation, id, order, plan, sources);
  }
  uint8_t* const data = shared_.base() + header()->data;
  for (size_t i = 0; i < std::min(sources.size(), kMaxTensors); ++i) {
    if (plan.status[i] != FLIGHT_KEPT || sources[i].bytes == 0) continue;
    uint8_t* const to = data + plan.begin[i];
    if (!sources[i].on_device) {
      memcpy(to, reinterpret_cast<const void*>(static_cast<uintptr_t>(sources[i].address)), sources[i].bytes);
    } else if (!device::copy_to_flight(stream, sources[i].address, sources[i].bytes, to)) {
      tensor_at(entry->first + i)->status = FLIGHT_NOT_COPIED;
    }
  }
  if (plan.device.has_value()) {
    const auto offset = static_cast<size_t>(reinterpret_cast<uint8_t*>(&entry->arrived) - shared_.base());
    device::write_flight(stream, offset, static_cast<uint32_t>(generation));
  } else {
    __atomic_store_n(&entry->arrived, static_cast<uint32_t>(generation), __ATOMIC_RELEASE);
  }
}

}  // namespace aoti_debug
