"""Functions for Python: `record`, `debug`, `triage`, `compare`, `repro`; the pytest plugin, the magic of notebooks."""
