"""One archive of a run or a triage to send, redacted on request."""
