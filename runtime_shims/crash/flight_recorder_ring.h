// Who has which bytes of the flight recorder. Launches take room in a ring; what one takes is no longer another's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace aoti_debug {

// Whose copies are made one after the other: a stream's, or a thread's on the host.
struct FlightOrder {
  uint64_t stream;
  uint64_t model;
  uint32_t thread;

  bool operator==(const FlightOrder& other) const {
    return stream == other.stream && model == other.model && thread == other.thread;
  }
};

struct FlightRoom {
  uint64_t begin;
  uint64_t end;
  uint64_t generation;  // of the launch that has these bytes
  FlightOrder order;
};

class FlightRing {
 public:
  // A ring without room.
  FlightRing() = default;

  // The ring is [begin, end). The last `keep` launches are spared while there is other room.
  FlightRing(uint64_t begin, uint64_t end, uint64_t keep)
      : begin_(begin), end_(end), keep_(keep), next_(begin), used_(begin) {}

  uint64_t capacity() const { return end_ - begin_; }
  uint64_t end() const { return end_; }
  void grow(uint64_t end) { end_ = end; }

  // Room for a launch without touching the last `keep`, and without what another order may still write to:
  // `arrived(generation)` says that it will not. Nothing where there is no such room.
  template <class Arrived>
  std::optional<FlightRoom> spare(uint64_t bytes, uint64_t generation, const FlightOrder& order,
                                  const Arrived& arrived) {
    const auto stands = [&](const FlightRoom& room) {
      return generation - room.generation <= keep_ || is_foreign(room, order, arrived);
    };
    for (const uint64_t at : {next_ == used_ ? begin_ : next_, begin_, used_}) {
      if (bytes <= end_ - at && find(at, at + bytes, stands) == nullptr)
        return put({at, at + bytes, generation, order});
    }
    return std::nullopt;
  }

  // The same at the oldest launches' cost.
  template <class Arrived>
  std::optional<FlightRoom> take(uint64_t bytes, uint64_t generation, const FlightOrder& order,
                                 const Arrived& arrived) {
    const auto stands = [&](const FlightRoom& room) { return is_foreign(room, order, arrived); };
    uint64_t at = by_age_.empty() ? begin_ : rooms_.at(by_age_.begin()->second).begin;
    for (int turns = 0; turns < 2;) {
      if (bytes > end_ - at) {
        ++turns;
        at = begin_;
        if (bytes > end_ - at) break;
      }
      const FlightRoom* other = find(at, at + bytes, stands);
      if (other == nullptr) return put({at, at + bytes, generation, order});
      at = other->end;
    }
    return std::nullopt;
  }

 private:
  template <class Arrived>
  static bool is_foreign(const FlightRoom& room, const FlightOrder& order, const Arrived& arrived) {
    return !(room.order == order) && !arrived(room.generation);
  }

  // The first room with bytes in [begin, end) that `stands`.
  template <class Stands>
  const FlightRoom* find(uint64_t begin, uint64_t end, const Stands& stands) const {
    for (auto at = rooms_.upper_bound(begin); at != rooms_.end() && at->second.begin < end; ++at) {
      if (stands(at->second)) return &at->second;
    }
    return nullptr;
  }

  FlightRoom put(const FlightRoom& room) {
    for (auto at = rooms_.upper_bound(room.begin); at != rooms_.end() && at->second.begin < room.end;) {
      by_age_.erase(at->second.generation);
      at = rooms_.erase(at);
    }
    rooms_.emplace(room.end, room);
    by_age_.emplace(room.generation, room.end);
    next_ = room.end;
    if (room.end > used_) used_ = room.end;
    return room;
  }

  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  uint64_t keep_ = 0;
  uint64_t next_ = 0;
  uint64_t used_ = 0;                     // what lies behind it was never taken
  std::map<uint64_t, FlightRoom> rooms_;  // by their ends
  std::map<uint64_t, uint64_t> by_age_;   // generation -> end
};

}  // namespace aoti_debug
