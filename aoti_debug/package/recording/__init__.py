"""The recording of launches: levels, filters of launches, the values that are recorded."""
