"""Child processes that can be killed, or that end with this one; forks of a process that has imported torch."""
