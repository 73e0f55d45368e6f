#include "hashing.h"

#include <string.h>

#include "machine/parallel.h"

namespace aoti_debug {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

uint64_t load_word(const uint8_t* from, size_t bytes = kWord) {
  uint64_t word = 0;
  memcpy(&word, from, bytes);
  return word;
}

#if defined(__AVX512DQ__)

constexpr size_t kLanes = 8;
typedef uint64_t Words __attribute__((vector_size(kLanes * kWord)));

inline Words mix(Words x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline Words first_steps(uint64_t first_word, uint64_t step) {
  Words steps;
  for (size_t lane = 0; lane < kLanes; ++lane) steps[lane] = (first_word + lane + 1) * step;
  return steps;
}

inline uint64_t total(Words sums) {
  uint64_t sum = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

// Whole groups of lanes. Returns how many words it read.
size_t hash_groups(const uint8_t* data, size_t words, uint64_t first_word, uint64_t step, uint64_t* sum) {
  Words steps = first_steps(first_word, step);
  Words sums = {};
  size_t i = 0;
  for (; i + kLanes <= words; i += kLanes) {
    Words group;
    memcpy(&group, data + i * kWord, sizeof(group));
    sums += mix(group + steps);
    steps += kLanes * step;
  }
  *sum += total(sums);
  return i;
}

#else

size_t hash_groups(const uint8_t* data, size_t words, uint64_t first_word, uint64_t step, uint64_t* sum) {
  uint64_t sums[4] = {};
  uint64_t steps = (first_word + 1) * step;
  size_t i = 0;
  for (; i + 4 <= words; i += 4) {
    sums[0] += hash_mix(load_word(data + (i + 0) * kWord) + steps);
    sums[1] += hash_mix(load_word(data + (i + 1) * kWord) + steps + step);
    sums[2] += hash_mix(load_word(data + (i + 2) * kWord) + steps + 2 * step);
    sums[3] += hash_mix(load_word(data + (i + 3) * kWord) + steps + 3 * step);
    steps += 4 * step;
  }
  *sum += sums[0] + sums[1] + sums[2] + sums[3];
  return i;
}

#endif

uint64_t hash_with(const uint8_t* data, size_t bytes, uint64_t first_word, uint64_t step) {
  uint64_t sum = 0;
  const size_t words = bytes / kWord;
  for (size_t i = hash_groups(data, words, first_word, step, &sum); i < words; ++i) {
    sum += hash_term(load_word(data + i * kWord), first_word + i, step);
  }
  if (const size_t rest = bytes % kWord) {
    sum += hash_term(load_word(data + words * kWord, rest), first_word + words, step);
  }
  return sum;
}

struct Sum {
  uint64_t value = 0;

  void add(const Sum& later) { value += later.value; }
};

// `hash(data, bytes, first_word)` of all elements, by all threads, added up.
template <class Result, class Hash>
Result sum_elements(const StridedReader& reader, int64_t count, size_t element_bytes, const Hash& hash) {
  constexpr int64_t kBlock = 1024;  // elements; a whole number of words
  return in_parts<Result>(count, [&](int64_t begin, int64_t end) {
    alignas(64) uint8_t gathered[kBlock * 16];
    const int64_t step = reader.is_contiguous() ? end - begin : kBlock;
    Result sum;
    for (int64_t at = begin; at < end; at += step) {
      const int64_t n = end - at < step ? end - at : step;
      sum.add(hash(reader.read(at, n, gathered), static_cast<size_t>(n) * element_bytes,
                   static_cast<uint64_t>(at) * element_bytes / kWord));
    }
    return sum;
  });
}

}  // namespace

uint64_t hash_bytes(const uint8_t* data, size_t bytes, uint64_t first_word) {
  return hash_with(data, bytes, first_word, kHashStep);
}

HashSums hash_bytes_twice(const uint8_t* data, size_t bytes, uint64_t first_word) {
  constexpr size_t kPart = 16384;  // read from memory once
  HashSums sums;
  for (size_t done = 0; done < bytes; done += kPart) {
    const size_t part = bytes - done < kPart ? bytes - done : kPart;
    sums.first += hash_with(data + done, part, first_word + done / kWord, kHashStep);
    sums.second += hash_with(data + done, part, first_word + done / kWord, kHashStep2);
  }
  return sums;
}

uint64_t host_hash(const device::TensorView& view) {
  const Sum sum = sum_elements<Sum>(
      StridedReader(view), view.numel, view.element_bytes,
      [](const uint8_t* data, size_t bytes, uint64_t first_word) { return Sum{hash_bytes(data, bytes, first_word)}; });
  return hash_finish(sum.value, static_cast<uint64_t>(view.numel) * view.element_bytes);
}

HashSums hash_elements(const StridedReader& reader, int64_t count, size_t element_bytes) {
  return sum_elements<HashSums>(reader, count, element_bytes, hash_bytes_twice);
}

}  // namespace aoti_debug
