"""The range of the numbers that are written as JSON, which has no infinities; what counts as explained."""

LARGEST = 1e300  # stands for any larger number
SMALLEST = 1e-300  # a divisor in place of zero
EXPLAINED = 0.5  # the part of an error that a cause has to make up; where numbers cancel, float64 rounds, too
LEAST = 1e-6  # a relative difference of two evaluations in float64; rounding makes far less
