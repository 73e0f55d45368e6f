// Mean and squared deviations, in parts that can be added up.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

namespace aoti_debug {

// Values are in units of 2^exponent, so that squares of 1e300 and of 1e-300 stay in range.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double squares = 0;  // of the deviations from the mean
  int exponent = 0;

  void add(Moments other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    if (exponent != other.exponent) {
      const int common = std::max(exponent, other.exponent);
      rescale(common);
      other.rescale(common);
    }
    const auto total = static_cast<double>(count + other.count);
    const double delta = other.mean - mean;
    squares += other.squares + delta * delta * (static_cast<double>(count) * static_cast<double>(other.count) / total);
    mean += delta * (static_cast<double>(other.count) / total);
    count += other.count;
  }

  double value_mean() const { return count == 0 ? NAN : std::ldexp(mean, exponent); }
  double value_std() const {
    return count == 0 ? NAN : std::ldexp(std::sqrt(squares / static_cast<double>(count)), exponent);
  }

 private:
  void rescale(int to) {
    mean = std::ldexp(mean, exponent - to);
    squares = std::ldexp(squares, 2 * (exponent - to));
    exponent = to;
  }
};

}  // namespace aoti_debug
