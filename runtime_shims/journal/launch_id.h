// A launch's place in its run.
#pragma once

#include <cstdint>
#include <string>

#include "aoti_debug.h"

namespace aoti_debug {

struct LaunchId {
  uint32_t call;
  uint32_t launch;
  uint8_t kind;  // AotiDebugCallKind

  // "0", "c0".
  std::string call_name() const { return (kind == AOTI_DEBUG_CALL_CONSTANT ? "c" : "") + std::to_string(call); }

  // "0.3", "c0.1".
  std::string name() const { return call_name() + "." + std::to_string(launch); }

  bool operator==(const LaunchId& other) const {
    return call == other.call && launch == other.launch && kind == other.kind;
  }
};

constexpr LaunchId kNoLaunch{UINT32_MAX, UINT32_MAX, 0};

}  // namespace aoti_debug
