"""The range of the numbers that are written as JSON, which has no infinities."""

LARGEST = 1e300  # stands for any larger number
SMALLEST = 1e-300  # a divisor in place of zero
