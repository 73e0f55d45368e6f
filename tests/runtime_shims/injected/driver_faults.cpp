// Calls of the runtime to the CUDA driver that fail when the host says so: the runtime alone is linked with --wrap for
// them. Behind them is a fake driver (../../runtime_shims_cuda/emulator), which does everything at once. Not among
// them: cuStreamQuery, whose error is how the device says that it is broken, and what gives memory or a context back.
#include <cuda.h>

#include <mutex>

#include "../marked_tensors.h"
#include "faults.h"

extern "C" void emulator_use_context(uint64_t number);
extern "C" void emulator_work_at_once();

namespace {

std::recursive_mutex g_driver;  // the fake one is for one thread

}  // namespace

void begin_device() {
  emulator_use_context(1);
  emulator_work_at_once();
}

#define DRIVER_ERRORS {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN}
#define FAILING_DRIVER(name, parameters, arguments)                                                 \
  extern "C" CUresult real_##name parameters __asm__(#name);                                        \
  extern "C" CUresult __wrap_##name parameters {                                                    \
    const std::lock_guard<std::recursive_mutex> lock(g_driver);                                     \
    const int error = fault_of(FAULT_OF_DEVICE, #name, DRIVER_ERRORS, __builtin_return_address(0)); \
    return error != 0 ? static_cast<CUresult>(error) : real_##name arguments;                       \
  }
#define LOCKED_DRIVER(name, parameters, arguments)              \
  extern "C" CUresult real_##name parameters __asm__(#name);    \
  extern "C" CUresult __wrap_##name parameters {                \
    const std::lock_guard<std::recursive_mutex> lock(g_driver); \
    return real_##name arguments;                               \
  }

FAILING_DRIVER(cuCtxGetCurrent, (CUcontext * context), (context))
FAILING_DRIVER(cuCtxPushCurrent_v2, (CUcontext context), (context))
FAILING_DRIVER(cuCtxGetDevice, (CUdevice * device), (device))
FAILING_DRIVER(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device),
               (value, attribute, device))
FAILING_DRIVER(cuDriverGetVersion, (int* version), (version))
FAILING_DRIVER(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags))
FAILING_DRIVER(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
FAILING_DRIVER(cuEventSynchronize, (CUevent event), (event))
FAILING_DRIVER(cuLaunchKernel,
               (CUfunction function, unsigned int x, unsigned int y, unsigned int z, unsigned int tx, unsigned int ty,
                unsigned int tz, unsigned int shared, CUstream stream, void** arguments, void** extra),
               (function, x, y, z, tx, ty, tz, shared, stream, arguments, extra))
FAILING_DRIVER(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra),
               (config, function, arguments, extra))
FAILING_DRIVER(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes))
FAILING_DRIVER(cuMemHostAlloc, (void** memory, size_t bytes, unsigned int flags), (memory, bytes, flags))
FAILING_DRIVER(cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void* memory, unsigned int flags),
               (address, memory, flags))
FAILING_DRIVER(cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned int flags), (memory, bytes, flags))
FAILING_DRIVER(cuMemHostUnregister, (void* memory), (memory))
FAILING_DRIVER(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               (to, from, bytes, stream))
FAILING_DRIVER(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               (to, from, bytes, stream))
FAILING_DRIVER(cuMemsetD32Async, (CUdeviceptr address, unsigned int value, size_t count, CUstream stream),
               (address, value, count, stream))
FAILING_DRIVER(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
               (function, module, name))
FAILING_DRIVER(cuModuleLoadDataEx,
               (CUmodule * module, const void* image, unsigned int count, CUjit_option* options, void** values),
               (module, image, count, options, values))
FAILING_DRIVER(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))
FAILING_DRIVER(cuStreamGetCtx, (CUstream stream, CUcontext* context), (stream, context))
FAILING_DRIVER(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status), (stream, status))
FAILING_DRIVER(cuStreamSynchronize, (CUstream stream), (stream))
FAILING_DRIVER(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))
LOCKED_DRIVER(cuCtxPopCurrent_v2, (CUcontext * context), (context))
LOCKED_DRIVER(cuMemFree_v2, (CUdeviceptr address), (address))
LOCKED_DRIVER(cuMemFreeHost, (void* memory), (memory))
LOCKED_DRIVER(cuStreamDestroy_v2, (CUstream stream), (stream))
LOCKED_DRIVER(cuStreamQuery, (CUstream stream), (stream))
