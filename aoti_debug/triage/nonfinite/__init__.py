"""NaN and infinities: which launch made the first one that does harm, and why. Begin with `nonfinite`."""
