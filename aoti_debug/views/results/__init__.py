"""The directories that commands have made in the home of results: their list, and their deletion."""
