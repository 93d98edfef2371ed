"""Types and tables that need NumPy only: the bit format, dtypes, errors, forks, text."""
