// Work on the elements of a tensor in parts of a fixed size, by several threads where there are several parts. Results
// are added in the order of the parts, so that they do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aoti_debug {

constexpr int64_t kPartElements = int64_t{1} << 17;

// In the child of a fork, the threads that OpenMP counts on are not there: it would wait for them for ever.
void use_one_thread();
bool may_use_threads();

// `work(begin, end)` gives a Result; the results of all parts of [0, count) are `add`ed up.
template <class Result, class Work>
Result in_parts(int64_t count, const Work& work) {
  const int64_t n_parts = (count + kPartElements - 1) / kPartElements;
  if (n_parts <= 1) return work(0, count);
  std::vector<Result> results(static_cast<size_t>(n_parts));
#if defined(_OPENMP)
#pragma omp parallel for schedule(dynamic) if (may_use_threads())
#endif
  for (int64_t part = 0; part < n_parts; ++part) {
    const int64_t begin = part * kPartElements;
    const int64_t end = begin + kPartElements < count ? begin + kPartElements : count;
    results[static_cast<size_t>(part)] = work(begin, end);
  }
  Result total = results[0];
  for (int64_t part = 1; part < n_parts; ++part) total.add(results[static_cast<size_t>(part)]);
  return total;
}

}  // namespace aoti_debug
