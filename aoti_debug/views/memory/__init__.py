"""The memory of a model's calls: the peak, which buffers make it, a picture.

`lifetimes` finds when each storage is there, `storage_timeline` holds it.
"""
