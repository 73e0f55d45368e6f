"""The folder that a script's process has first on PYTHONPATH, so that Python imports `sitecustomize` from it."""
