#include "statistics.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "machine/float_environment.h"
#include "machine/parallel.h"
#include "moments.h"
#include "tensors/dtype.h"
#include "tensors/elements.h"
#include "tensors/hashing.h"
#include "tensors/strided.h"

namespace aoti_debug {
namespace {

constexpr int64_t kBlock = 4096;  // elements that are looked at several times while they are in the cache
#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <class T>
struct Vector {
  static constexpr int64_t lanes = kVectorBytes / sizeof(T);
  typedef T Type __attribute__((vector_size(kVectorBytes)));
  using Mask = decltype(Type{} < Type{});

  static Type load(const T* from) {
    Type vector;
    memcpy(&vector, from, sizeof(vector));
    return vector;
  }
  static Type all(T value) { return value - Type{}; }
};

constexpr int64_t kDoubles = Vector<double>::lanes;
using Doubles = Vector<double>::Type;

// As many elements as there are doubles in a vector, converted.
template <class T>
Doubles load_doubles(const T* from) {
  typedef T Narrow __attribute__((vector_size(kDoubles * sizeof(T))));
  Narrow values;
  memcpy(&values, from, sizeof(values));
  return __builtin_convertvector(values, Doubles);
}

template <class T>
constexpr T lowest_start() {
  return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
}
template <class T>
constexpr T highest_start() {
  return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
}

template <class T>
bool is_finite(T x) {
  if constexpr (std::is_floating_point_v<T>) return x - x == 0;
  return true;
}

template <class T>
struct Extremes {
  T low = lowest_start<T>();  // of the finite elements
  T high = highest_start<T>();
  int64_t n_zero = 0;
  int64_t n_finite = 0;
};

// Of a block whose elements are all finite; n_finite is 0 where some are not.
template <class T>
Extremes<T> extremes_of_finite(const T* x, int64_t count) {
  using V = Vector<T>;
  constexpr int kChains = 4;
  typename V::Type low[kChains], high[kChains], odd[kChains] = {};
  typename V::Mask zeros[kChains] = {};
  for (int k = 0; k < kChains; ++k) low[k] = V::all(lowest_start<T>()), high[k] = V::all(highest_start<T>());
  int64_t i = 0;
  for (; i + kChains * V::lanes <= count; i += kChains * V::lanes) {
    for (int k = 0; k < kChains; ++k) {
      const typename V::Type v = V::load(x + i + k * V::lanes);
      zeros[k] -= v == 0;
      low[k] = v < low[k] ? v : low[k];
      high[k] = v > high[k] ? v : high[k];
      if constexpr (std::is_floating_point_v<T>) odd[k] += v - v;  // NaN once an element is not finite
    }
  }
  for (int k = 1; k < kChains; ++k) {
    low[0] = low[k] < low[0] ? low[k] : low[0];
    high[0] = high[k] > high[0] ? high[k] : high[0];
    odd[0] += odd[k];
    zeros[0] += zeros[k];
  }
  Extremes<T> found;
  bool finite = true;
  for (int64_t lane = 0; lane < V::lanes; ++lane) {
    found.low = std::min(found.low, low[0][lane]);
    found.high = std::max(found.high, high[0][lane]);
    found.n_zero += static_cast<int64_t>(zeros[0][lane]);
    finite &= odd[0][lane] == 0;
  }
  for (; i < count; ++i) {
    finite &= is_finite(x[i]);
    found.n_zero += x[i] == 0;
    found.low = std::min(found.low, x[i]);
    found.high = std::max(found.high, x[i]);
  }
  found.n_finite = finite ? count : 0;
  return found;
}

template <class T>
Extremes<T> extremes(const T* x, int64_t count) {
  Extremes<T> found = extremes_of_finite(x, count);
  if (found.n_finite == count) return found;
  found = Extremes<T>();
  for (int64_t i = 0; i < count; ++i) {
    if (!is_finite(x[i])) continue;
    ++found.n_finite;
    found.n_zero += x[i] == 0;
    found.low = std::min(found.low, x[i]);
    found.high = std::max(found.high, x[i]);
  }
  return found;
}

// Moments of the finite elements, of which there is at least one.
template <class T, bool kAllFinite>
Moments moments(const T* x, int64_t count, const Extremes<T>& found) {
  Moments result;
  result.count = found.n_finite;
  double scale = 1;
  if constexpr (std::is_same_v<T, double>) {
    const double largest = std::max(-found.low, found.high);
    if (largest > 0x1p400 || (largest < 0x1p-400 && largest > 0)) {
      result.exponent = std::ilogb(largest);
      scale = std::ldexp(1.0, -std::clamp(result.exponent, -1000, 1000));
      result.exponent = std::clamp(result.exponent, -1000, 1000);
    }
  }
  const double pivot = static_cast<double>(found.low) * scale;
  Doubles sums[2] = {}, squares[2] = {};
  int64_t i = 0;
  for (; i + 2 * kDoubles <= count; i += 2 * kDoubles) {
    for (int half = 0; half < 2; ++half) {
      const Doubles v = load_doubles(x + i + half * kDoubles);
      Doubles deviation = (std::is_same_v<T, double> ? v * scale : v) - pivot;
      if constexpr (!kAllFinite) deviation = (v - v == 0) ? deviation : Doubles{};
      sums[half] += deviation;
      squares[half] += deviation * deviation;
    }
  }
  double sum = 0, square = 0;
  for (int64_t lane = 0; lane < kDoubles; ++lane) {
    sum += sums[0][lane] + sums[1][lane];
    square += squares[0][lane] + squares[1][lane];
  }
  for (; i < count; ++i) {
    if (!is_finite(x[i])) continue;
    const double deviation = static_cast<double>(x[i]) * scale - pivot;
    sum += deviation;
    square += deviation * deviation;
  }
  const double mean = sum / static_cast<double>(found.n_finite);
  result.mean = pivot + mean;
  result.squares = std::max(square - sum * mean, 0.0);
  return result;
}

template <class T>
int64_t first_index(const T* x, int64_t count, T value) {
  using V = Vector<T>;
  int64_t i = 0;
  for (; i + 4 * V::lanes <= count; i += 4 * V::lanes) {
    typename V::Mask any = {};
    for (int k = 0; k < 4; ++k) any |= V::load(x + i + k * V::lanes) == value;
    uint64_t words[kVectorBytes / sizeof(uint64_t)];
    memcpy(words, &any, sizeof(any));
    uint64_t found = 0;
    for (const uint64_t word : words) found |= word;
    if (found != 0) break;
  }
  while (i < count && x[i] != value) ++i;
  return i;
}

// The statistics of a part of a tensor.
template <class T>
struct Partial {
  T low = lowest_start<T>();
  T high = highest_start<T>();
  int64_t low_index = -1;  // -1: there is no finite element
  int64_t high_index = -1;
  uint64_t n_nan = 0;
  uint64_t n_pos_inf = 0;
  uint64_t n_neg_inf = 0;
  uint64_t n_zero = 0;
  uint64_t hash_sum = 0;
  Moments moments;

  void add(const Partial& later) {
    if (later.low_index >= 0 && (low_index < 0 || later.low < low)) {
      low = later.low;
      low_index = later.low_index;
    }
    if (later.high_index >= 0 && (high_index < 0 || later.high > high)) {
      high = later.high;
      high_index = later.high_index;
    }
    n_nan += later.n_nan;
    n_pos_inf += later.n_pos_inf;
    n_neg_inf += later.n_neg_inf;
    n_zero += later.n_zero;
    hash_sum += later.hash_sum;
    moments.add(later.moments);
  }

  // `first` is the index of x[0] in the tensor.
  void add_block(const T* x, int64_t count, int64_t first) {
    const Extremes<T> found = extremes(x, count);
    if (found.n_finite < count) count_special(x, count);
    n_zero += static_cast<uint64_t>(found.n_zero);
    if (found.n_finite == 0) return;
    if (low_index < 0 || found.low < low) {
      low = found.low;
      low_index = first + first_index(x, count, low);
    }
    if (high_index < 0 || found.high > high) {
      high = found.high;
      high_index = first + first_index(x, count, high);
    }
    moments.add(found.n_finite == count ? aoti_debug::moments<T, true>(x, count, found)
                                        : aoti_debug::moments<T, false>(x, count, found));
  }

 private:
  void count_special(const T* x, int64_t count) {
    uint64_t nan = 0, above = 0, below = 0;
    for (int64_t i = 0; i < count; ++i) {
      nan += x[i] != x[i];
      above += x[i] == lowest_start<T>();
      below += x[i] == highest_start<T>();
    }
    n_nan += nan;
    n_pos_inf += above;
    n_neg_inf += below;
  }
};

uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <class T>
uint64_t extremum_bits(T value) {
  if constexpr (std::is_floating_point_v<T>) return bits_of(static_cast<double>(value));
  return static_cast<uint64_t>(value);
}

// `convert(bytes, count, buffer)` gives `count` elements as T: in place, or in the buffer.
template <class T, class Convert>
void run(const device::TensorView& view, const Convert& convert, TensorStats* stats) {
  const StridedReader reader(view);
  const auto total = in_parts<Partial<T>>(view.numel, [&](int64_t begin, int64_t end) {
    const FloatEnvironment environment;
    alignas(kVectorBytes) uint8_t gathered[kBlock * 16];
    alignas(kVectorBytes) T converted[kBlock];
    Partial<T> part;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      const uint8_t* bytes = reader.read(at, count, gathered);
      const uint64_t first_word = static_cast<uint64_t>(at) * view.element_bytes / sizeof(uint64_t);
      part.hash_sum += hash_bytes(bytes, static_cast<size_t>(count) * view.element_bytes, first_word);
      part.add_block(convert(bytes, count, converted), count, at);
    }
    return part;
  });
  stats->integer = std::is_floating_point_v<T> ? 0 : std::is_unsigned_v<T> ? 2 : 1;
  stats->numel = static_cast<uint64_t>(view.numel);
  stats->n_nan = total.n_nan;
  stats->n_pos_inf = total.n_pos_inf;
  stats->n_neg_inf = total.n_neg_inf;
  stats->n_zero = total.n_zero;
  const bool any = total.low_index >= 0;
  const uint64_t nothing = std::is_floating_point_v<T> ? bits_of(std::numeric_limits<double>::quiet_NaN()) : 0;
  stats->min_bits = any ? extremum_bits(total.low) : nothing;
  stats->max_bits = any ? extremum_bits(total.high) : nothing;
  stats->min_index = any ? static_cast<uint64_t>(total.low_index) : 0;
  stats->max_index = any ? static_cast<uint64_t>(total.high_index) : 0;
  const FloatEnvironment environment;
  stats->mean = total.moments.value_mean();
  stats->std = total.moments.value_std();
  stats->hash = hash_finish(total.hash_sum, static_cast<uint64_t>(view.numel) * view.element_bytes);
}

template <class T>
void run_plain(const device::TensorView& view, TensorStats* stats) {
  run<T>(view, [](const uint8_t* bytes, int64_t, T*) { return reinterpret_cast<const T*>(bytes); }, stats);
}

template <class From, class To>
void run_widened(const device::TensorView& view, TensorStats* stats) {
  const auto widen = [](const uint8_t* bytes, int64_t count, To* to) {
    const From* from = reinterpret_cast<const From*>(bytes);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);  // NOLINT(bugprone-signed-char-misuse): int8
    return static_cast<const To*>(to);
  };
  run<To>(view, widen, stats);
}

template <class To>
void run_converted(const device::TensorView& view, void (*convert)(const uint8_t*, int64_t, To*), TensorStats* stats) {
  const auto converted = [convert](const uint8_t* bytes, int64_t count, To* to) {
    convert(bytes, count, to);
    return static_cast<const To*>(to);
  };
  run<To>(view, converted, stats);
}

void run_float8(const device::TensorView& view, Float8 format, TensorStats* stats) {
  const float* values = float8_values(format);
  const auto look_up = [values](const uint8_t* bytes, int64_t count, float* to) {
    convert_float8(bytes, count, values, to);
    return static_cast<const float*>(to);
  };
  run<float>(view, look_up, stats);
}

}  // namespace

void host_statistics(const device::TensorView& view, TensorStats* stats) {
  switch (view.dtype) {
    case kUInt8:
      return run_widened<uint8_t, int32_t>(view, stats);
    case kInt8:
      return run_widened<int8_t, int32_t>(view, stats);
    case kInt16:
      return run_widened<int16_t, int32_t>(view, stats);
    case kUInt16:
      return run_widened<uint16_t, int32_t>(view, stats);
    case kInt32:
      return run_plain<int32_t>(view, stats);
    case kUInt32:
      return run_widened<uint32_t, int64_t>(view, stats);
    case kInt64:
      return run_plain<int64_t>(view, stats);
    case kUInt64:
      return run_plain<uint64_t>(view, stats);
    case kBoolean:
      return run_converted<int32_t>(view, convert_bool, stats);
    case kFloat32:
      return run_plain<float>(view, stats);
    case kFloat64:
      return run_plain<double>(view, stats);
    case kFloat16:
      return run_converted<float>(view, convert_float16, stats);
    case kBFloat16:
      return run_converted<float>(view, convert_bfloat16, stats);
    case kFloat8E5M2:
      return run_float8(view, Float8::kE5M2, stats);
    case kFloat8E4M3FN:
      return run_float8(view, Float8::kE4M3FN, stats);
    case kFloat8E5M2FNUZ:
      return run_float8(view, Float8::kE5M2FNUZ, stats);
    case kFloat8E4M3FNUZ:
      return run_float8(view, Float8::kE4M3FNUZ, stats);
    case kFloat8E8M0FNU:
      return run_float8(view, Float8::kE8M0FNU, stats);
    case kComplex32:
      return run_converted<double>(view, convert_complex32, stats);
    case kBComplex32:
      return run_converted<double>(view, convert_bcomplex32, stats);
    case kComplex64:
      return run_converted<double>(view, convert_complex64, stats);
    case kComplex128:
      return run_converted<double>(view, convert_complex128, stats);
    default:
      return;
  }
}

}  // namespace aoti_debug
