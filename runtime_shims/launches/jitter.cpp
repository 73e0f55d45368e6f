#include "jitter.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace aoti_debug {
namespace {

constexpr uint64_t kShortestNs = 10000;
constexpr uint32_t kDoublings = 9;
constexpr uint64_t kLongestWaitNs = 10000000;
constexpr uint64_t kWakingNs = 3000000;
constexpr uint32_t kCallsAlike = 4;
constexpr size_t kMeetings = 64;  // launches with numbers this far apart share one

struct Meeting {
  std::atomic<uint32_t> arrived{0};  // threads
  std::atomic<uint32_t> gone_on{0};  // by the last first thread that did: the number of its second one
};

std::array<Meeting, kMeetings> g_meetings;

// Spreads the bits of a number over all of them (splitmix64).
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t random_number(const Jitter& jitter, uint32_t call, uint32_t launch) {
  return mixed(mixed(jitter.seed) ^ (uint64_t{call} << 32 | launch));
}

uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

// Waits until a condition holds, but not for longer than a time.
template <class Condition>
void wait_until(const Condition& holds, uint64_t longest_ns) {
  const uint64_t end = now() + longest_ns;
  while (!holds() && now() < end) sched_yield();
}

// Of two threads that come here one after the other, the first one waits for the second, and that until the first one
// goes on: then both run.
void meet(Meeting& meeting) {
  const uint32_t mine = meeting.arrived.fetch_add(1);
  if (mine % 2 == 0) {
    wait_until([&] { return meeting.arrived.load() != mine + 1; }, kLongestWaitNs);
    meeting.gone_on.store(mine + 1);
  } else {
    wait_until([&] { return meeting.gone_on.load() == mine; }, kWakingNs);
  }
}

}  // namespace

void delay_before(const Jitter& jitter, uint32_t call, uint32_t launch) {
  const std::vector<uint32_t>& chosen = jitter.launches;
  if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), launch) == chosen.end()) return;
  // Calls at about the same time do the same: threads can meet only if more than one of them waits for another.
  const uint64_t choice = random_number(jitter, call / kCallsAlike, launch) % 4;
  if (choice == 0) return;
  if (choice <= 2) return meet(g_meetings[launch % kMeetings]);
  const uint64_t nanoseconds = kShortestNs << random_number(jitter, ~call, launch) % kDoublings;
  const timespec pause{0, static_cast<long>(nanoseconds)};
  nanosleep(&pause, nullptr);
}

}  // namespace aoti_debug
