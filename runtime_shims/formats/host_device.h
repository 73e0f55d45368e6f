// AOTI_DEBUG_HOST_DEVICE: before a function that the host and the kernels of a device call.
#pragma once

#if defined(__CUDACC__)
#define AOTI_DEBUG_HOST_DEVICE __host__ __device__
#else
#define AOTI_DEBUG_HOST_DEVICE
#endif
