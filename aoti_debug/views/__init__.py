"""Views for people: the report, kernel code, memory, times, summaries, call texts, and archives to send.

In: a run directory, a triage or two runs. Out: text, one HTML file, JSON, an archive. Read `report/document.py` first.
"""
