"""The values of a graph's nodes, in one of several arithmetics. Runs in a child process."""
