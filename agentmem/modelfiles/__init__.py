"""Model files: where they come from, how they are read, how their text is cut into tokens."""
