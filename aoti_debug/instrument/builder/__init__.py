"""Makes an instrumented package of sources: instruments, compiles, links, writes the `.pt2`.

`build` goes through the steps, `instrument` changes the text of the wrapper.
"""
