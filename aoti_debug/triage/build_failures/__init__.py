"""Parts of a build that fail: the finding, its repro and proof, the build without them.

Begin with `build_without`.
"""
