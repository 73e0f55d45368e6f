"""The operator and the model line behind a non-finite element or a fault of a recorded launch."""
