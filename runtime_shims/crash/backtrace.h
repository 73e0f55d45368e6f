// The native stacks of a process that dies of a signal, or that is asked where it hangs.
//
// backtrace.txt of the run directory gets three lines a thread, addresses in hexadecimal:
//   thread TID signal NUMBER code SI_CODE address SI_ADDR pc PC caller RETURN_ADDRESS
//   time TID NANOSECONDS                               of this machine's wall clock, since 1970
//   frames TID PC RETURN_ADDRESS RETURN_ADDRESS …      innermost first; absent where unwinding itself crashed
// backtrace.maps is a copy of /proc/self/maps of that moment. Neither is there before something happens.
#pragma once

#include <string>

namespace aoti_debug {

// Asks for the stack of the thread that it is sent to, which goes on afterwards: SIGRTMIN plus this.
constexpr int kStackRequest = 7;

// Catches SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM and the request from now on, and writes to `directory`
// (absolute). Handlers that were there before run after ours; the signal that ends the process stays the same.
void catch_crashes(const std::string& directory);

// Puts back the handlers that were there before, where ours are still in place.
void release_crashes();

// In the child of a fork: what the handlers would write is the parent's.
void forget_crashes();

// Writes down the stack of the calling thread, which goes on, from the frame on whose code address is `pc`; all of it
// where there is none. Nothing where crashes are not caught.
void write_own_stack(const void* pc);

// Gives the calling thread a stack of its own to handle signals on: one that has run out of stack needs it.
void add_signal_stack();
void remove_signal_stack();

}  // namespace aoti_debug
