"""From "it crashes" or "it is NaN" to the culprit: runs a model in every telling way and ends in one finding."""
