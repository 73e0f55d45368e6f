"""The files that the runtime writes, decoded: journal, tensor files, statistics, hashes."""
