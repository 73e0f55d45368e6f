"""Launches: finds them, what they call, and their arguments; a module `forms_*` for each form. Begin with `sites`."""
