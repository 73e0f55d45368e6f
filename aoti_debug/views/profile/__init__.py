"""The time of each launch of a model and between launches, beside what this machine can do."""
