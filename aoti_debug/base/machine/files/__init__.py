"""Files that appear whole or not at all, untrusted files, directories named by date, the home of results.

`json_data` turns dataclasses into JSON and back.
"""
