// What the flight recorder keeps of a launch.
#pragma once

#include <vector>

#include "crash/flight_recorder.h"
#include "run/thread_state.h"

namespace aoti_debug {

// The tensors that the launch may read: all but those that it only writes. One that is passed twice is there once.
std::vector<FlightSource> flight_sources(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values);

// Keeps those tensors in the flight recorder of the run.
void record_flight(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values);

}  // namespace aoti_debug
