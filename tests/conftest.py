"""Its presence puts tests/ on the import path: `factories` is found from every folder."""
