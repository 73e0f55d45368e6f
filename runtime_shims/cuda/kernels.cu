// All kernels: make_ptx.py compiles them as one unit, so that what they share is compiled once.
#include "graphs.cu"
#include "guards.cu"
#include "statistics.cu"
