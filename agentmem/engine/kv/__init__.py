"""Paged keys and values: where they lie, who holds them, what may be shared."""
