"""The distance of outputs and states from what the program says, and the verdict on it."""
