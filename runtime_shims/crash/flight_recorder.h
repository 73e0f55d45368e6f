// The flight recorder: shared memory that outlives the process holds the inputs of the last launches, as they were
// before each launch (flight_recorder_format.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "flight_recorder_ring.h"
#include "formats/flight_recorder_format.h"
#include "journal/launch_id.h"
#include "machine/shared_file.h"

namespace aoti_debug {

// A tensor that a launch is about to read.
struct FlightSource {
  uint16_t slot;
  bool readable;
  bool on_device;
  uint64_t address;  // of its first element
  uint64_t bytes;    // up to the end of its last element
  uint64_t place;    // of a weight, in its file; 0: it is none
  bool referred;     // the file has its bytes there: it is not copied
  uint64_t hash[2];  // of a weight that is referred to
};

class Flight {
 public:
  // Makes the shared memory and links it as flight.bin in the run directory. With `on_device`, a device writes to it.
  // `bytes` of tensors are kept; nothing: as many as /dev/shm can well spare. `weights` describes the file that the
  // weights lie in. "", or why there is no recorder.
  std::string open(const std::string& run_directory, uint64_t keep, std::optional<uint64_t> bytes, bool on_device,
                   const std::string& weights);

  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // Copies what the launch is about to read: on the host at once, on the device in the order of `stream`.
  void record(const LaunchId& id, void* stream, const FlightOrder& order, const std::vector<FlightSource>& sources);

  // Removes the name of the shared memory: nothing is to be rescued.
  void remove() { shared_.remove(); }

  // Gives the shared memory back; what a device may still write to only loses its name. No thread is recording.
  void close();

 private:
  // Where the tensors of one launch go, and what became of each.
  struct Plan {
    std::vector<FlightStatus> status;
    std::vector<uint64_t> begin;
    std::optional<FlightRoom> host;
    std::optional<FlightRoom> device;
  };

  FlightHeader* header() const { return reinterpret_cast<FlightHeader*>(shared_.base()); }
  FlightLaunch* launch_at(uint64_t generation) const;
  FlightTensor* tensor_at(uint64_t index) const;
  bool has_arrived(uint64_t generation) const;
  bool all_arrived() const;

  Plan plan(uint64_t generation, const FlightOrder& order, const std::vector<FlightSource>& sources);
  std::optional<FlightRoom> room(FlightRing& ring, uint64_t bytes, uint64_t generation, const FlightOrder& order);
  bool grow_host(uint64_t bytes);
  FlightLaunch* publish(uint64_t generation, const LaunchId& id, const FlightOrder& order, const Plan& plan,
                        const std::vector<FlightSource>& sources);

  SharedFile shared_;
  std::atomic<bool> open_{false};
  std::mutex mutex_;  // guards what follows, and who has which entries
  FlightRing host_;
  FlightRing device_;  // has room only where a device writes
  uint64_t generation_ = 0;
  uint64_t tensors_ = 0;  // entries given out so far
};

}  // namespace aoti_debug
