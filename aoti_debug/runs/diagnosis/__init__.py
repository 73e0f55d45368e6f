"""From the records of a run to the guilty launch: `diagnose` decides, `verdict_text` says it in words.

`dataflow` follows tensors from launch to launch; `findings` are the results of a triage.
"""
