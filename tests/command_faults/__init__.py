"""Commands whose calls to the system fail."""
