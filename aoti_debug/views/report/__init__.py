"""One HTML file of a run, a triage or two runs; redaction.

`document` collects plain data, `page` makes the HTML of it.
"""
