"""Finds launches and flattens their arguments; a module `forms_*` for each form. Begin with `sites`."""
