"""The process that evaluates regions and whole programs.

`main` answers requests; `region` evaluates a region, `lowered_program` the whole graph that kernels come from, and
`exported_results` the exported program. `returned_outputs` judges what the run returned, `altered` finds what passes
changed.
"""
