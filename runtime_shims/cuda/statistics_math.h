// The arithmetic of the statistics: one thread's accumulator, and what a part of a tensor comes to.
//
// Compiles for the device and for the host; compiled without contraction of a * b + c, both give the same bits.
#pragma once

#include "element_types.h"
#include "formats/content_hash.h"
#include "interleaving.h"

namespace aoti_debug::cuda {

AOTI_DEBUG_FN double multiply_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

// sum / count, of a positive integer. Where that is a power of two, the product with its reciprocal is as exact, and a
// device has it sooner.
AOTI_DEBUG_FN double divide(double sum, double count) {
  const auto bits = bits_as<uint64_t>(count);
  if (bits << 12 != 0) return sum / count;
  return sum * bits_as<double>((uint64_t(2046) - (bits >> 52)) << 52);
}

// Sums of deviations from a pivot: one of the values, so that data far from zero lose nothing to cancellation.
struct Moments {
  static constexpr int unit_exponent = 1025;
  int exponent = unit_exponent;
  double pivot = 0, sum = 0, squares = 0;

  AOTI_DEBUG_FN void start(double x) { pivot = x; }
  AOTI_DEBUG_FN void add(double x) {
    const double deviation = x - pivot;
    sum += deviation;
    squares = multiply_add(deviation, deviation, squares);
  }
};

// The same in units of 2^(exponent - 1025), where `exponent` is the largest biased exponent seen: scaled values stay
// below 8, so no square overflows, or underflows while it matters.
struct ScaledMoments {
  static constexpr int smallest_exponent = 64;
  int exponent = smallest_exponent;
  double scale = power_of_two(Moments::unit_exponent - smallest_exponent);
  double pivot = 0, sum = 0, squares = 0;

  AOTI_DEBUG_FN void reach(double x) {
    const int larger = biased_exponent(x);
    if (larger <= exponent) return;
    const double factor = power_of_two(exponent - larger);
    pivot *= factor;
    sum *= factor;
    squares *= factor * factor;
    exponent = larger;
    scale = power_of_two(Moments::unit_exponent - larger);
  }
  AOTI_DEBUG_FN void start(double x) {
    reach(x);
    pivot = x * scale;
  }
  AOTI_DEBUG_FN void add(double x) {
    reach(x);
    const double deviation = x * scale - pivot;
    sum += deviation;
    squares = multiply_add(deviation, deviation, squares);
  }
};

// The statistics of a part of a tensor, every field 64 bits wide. `min` and `max` are patterns of Wide and mean nothing
// where `finite` is 0. `mean` is in units of 2^(exponent - 1025), `squares` (of deviations from the mean) in its
// square.
struct Partial {
  uint64_t finite, zero;
  uint64_t min, max, min_index, max_index;
  double mean, squares;
  int64_t exponent;
  uint64_t nan, pos_inf, neg_inf;
  uint64_t nan_index, pos_inf_index, neg_inf_index;  // of the first; nothing where the count is 0
  uint64_t hash;
};
constexpr uint32_t kPartialWords = sizeof(Partial) / sizeof(uint32_t);
static_assert(sizeof(Partial) == 16 * sizeof(uint64_t), "");

// From the sums of deviations from a pivot, and of their squares, of `finite` values.
AOTI_DEBUG_FN void set_moments(Partial& partial, double pivot, double sum, double squares) {
  const double shift = divide(sum, static_cast<double>(partial.finite));
  squares -= sum * shift;
  partial.mean = pivot + shift;
  partial.squares = squares > 0 ? squares : 0;
}

template <class Number>
AOTI_DEBUG_FN bool comes_first(Number value, uint64_t index, Number than, uint64_t than_index, bool smaller) {
  return (smaller ? value < than : than < value) | ((value == than) & (index < than_index));
}

template <class Number>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float lowest = -__builtin_huge_valf(), highest = __builtin_huge_valf();
};
template <>
struct Limits<double> {
  static constexpr double lowest = -__builtin_huge_val(), highest = __builtin_huge_val();
};
template <>
struct Limits<int32_t> {
  static constexpr int32_t lowest = INT32_MIN, highest = INT32_MAX;
};
template <>
struct Limits<uint32_t> {
  static constexpr uint32_t lowest = 0, highest = UINT32_MAX;
};
template <>
struct Limits<int64_t> {
  static constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;
};
template <>
struct Limits<uint64_t> {
  static constexpr uint64_t lowest = 0, highest = UINT64_MAX;
};

template <bool kScaled>
struct MomentsOf {
  using Type = Moments;
};
template <>
struct MomentsOf<true> {
  using Type = ScaledMoments;
};

// What one thread sees: chunks `first`, `first + step`, `first + 2 * step`, … of a tensor, in an order in which their
// numbers rise. Positions are counted in ticks, elements seen so far, which fit 32 bits.
template <class Type>
struct Accumulator {
  using Number = typename Type::Number;
  using Raw = typename Type::Raw;
  static constexpr uint32_t per_chunk = kChunkBytes / Type::bytes;

  uint32_t finite = 0, nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;
  uint32_t nan_tick = 0, pos_inf_tick = 0, neg_inf_tick = 0;  // of the first
  uint32_t min_tick = 0, max_tick = 0;  // right also where every value is the limit that the search starts from
  Number min = Limits<Number>::highest, max = Limits<Number>::lowest;
  typename MomentsOf<Type::scaled>::Type moments;

  // A chunk whose first element has this tick. One without special values takes the short way.
  AOTI_DEBUG_FN void add_chunk(const Chunk& chunk, uint32_t tick) {
    bool all_finite = true;
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < per_chunk; ++k) all_finite &= Type::finite(Type::raw(chunk, k));
    if (!all_finite) return add_elements(chunk, per_chunk, tick);
    if (finite == 0) moments.start(static_cast<double>(Type::number(Type::raw(chunk, 0))));
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < per_chunk; ++k) add_finite(Type::raw(chunk, k), tick + k);
    finite += per_chunk;
  }

  // The first `count` elements of a chunk.
  AOTI_DEBUG_FN void add_elements(const Chunk& chunk, uint32_t count, uint32_t tick) {
    AOTI_DEBUG_ROLL
    for (uint32_t k = 0; k < count; ++k) {
      const Raw raw = Type::raw(chunk, k);
      if (Type::finite(raw)) {
        if (finite == 0) moments.start(static_cast<double>(Type::number(raw)));
        add_finite(raw, tick + k);
        ++finite;
      } else {
        const Special special = Type::special(raw);
        if (special == Special::nan && nan++ == 0) nan_tick = tick + k;
        if (special == Special::pos_inf && pos_inf++ == 0) pos_inf_tick = tick + k;
        if (special == Special::neg_inf && neg_inf++ == 0) neg_inf_tick = tick + k;
      }
    }
  }

  AOTI_DEBUG_FN Partial partial(const Interleaving& order, uint64_t first, uint64_t step) const {
    using Wide = typename Type::Wide;
    Partial part{};
    part.nan = nan;
    part.pos_inf = pos_inf;
    part.neg_inf = neg_inf;
    if (nan != 0) part.nan_index = index(nan_tick, order, first, step);
    if (pos_inf != 0) part.pos_inf_index = index(pos_inf_tick, order, first, step);
    if (neg_inf != 0) part.neg_inf_index = index(neg_inf_tick, order, first, step);
    if (finite == 0) return part;
    part.finite = finite;
    part.zero = zero;
    part.min = bits_as<uint64_t>(static_cast<Wide>(min));
    part.max = bits_as<uint64_t>(static_cast<Wide>(max));
    part.min_index = index(min_tick, order, first, step);
    part.max_index = index(max_tick, order, first, step);
    set_moments(part, moments.pivot, moments.sum, moments.squares);
    part.exponent = moments.exponent;
    return part;
  }

 private:
  AOTI_DEBUG_FN void add_finite(const Raw& raw, uint32_t tick) {
    const Number x = Type::number(raw);
    zero += x == 0;
    if (x < min) {
      min = x;
      min_tick = tick;
    }
    if (max < x) {
      max = x;
      max_tick = tick;
    }
    moments.add(static_cast<double>(x));
  }

  static AOTI_DEBUG_FN uint64_t index(uint32_t tick, const Interleaving& order, uint64_t first, uint64_t step) {
    return chunk_number(order, tick / per_chunk * step + first) * per_chunk + tick % per_chunk;
  }
};

// Bytes alone: nothing but the hash, which the kernel keeps.
template <uint32_t kBytes>
struct Accumulator<Opaque<kBytes>> {
  static constexpr uint32_t per_chunk = kChunkBytes / kBytes;
  AOTI_DEBUG_FN void add_chunk(const Chunk&, uint32_t) {}
  AOTI_DEBUG_FN void add_elements(const Chunk&, uint32_t, uint32_t) {}
  AOTI_DEBUG_FN Partial partial(const Interleaving&, uint64_t, uint64_t) const { return Partial{}; }
};

}  // namespace aoti_debug::cuda
