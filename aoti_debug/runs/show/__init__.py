"""Views of a run: lines of text for people, one JSON object for programs. Nothing here prints."""
