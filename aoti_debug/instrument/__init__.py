"""Makes an instrumented package of an exported program or of a compiled package.

In: a `.pt2` file. Out: a package whose every launch goes through the runtime, and its manifest. `frontend` gets the
sources, `wrapper` finds the launches in them, `builder` changes, compiles and packs them. Read
`builder/build.py` first.
"""
