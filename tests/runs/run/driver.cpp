// Functions of the CUDA driver that check what they are given.
extern "C" __attribute__((visibility("default"))) int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = const_cast<char*>(name);
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cuLaunchKernel(void* function, unsigned gx, unsigned gy,
                                                                     unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                                                     unsigned shared, void* stream, void** args,
                                                                     void** extra) {
  const bool same = gx == 2 && gy == 3 && gz == 4 && bx == 128 && by == 1 && bz == 1 && shared == 64;
  if (!same || stream != nullptr || args != nullptr || extra != nullptr) return 1;
  return static_cast<const char*>(function)[0] == 'b' ? 700 : 0;
}
