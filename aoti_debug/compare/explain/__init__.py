"""The operator of a region that made a wrong, non-finite or unusable element. Runs in a child process."""
