"""Device code. Everything here needs triton, and is Triton's language rather than Python."""
