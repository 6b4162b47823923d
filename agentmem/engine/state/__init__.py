"""State of recurrent layers: decided by pure rules, staged whole, published all at once."""
