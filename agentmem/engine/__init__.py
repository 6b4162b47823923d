"""The local engine: one model behind an OpenAI-compatible API, or as a Python object."""

import os

# torch keeps a compiled product for each number of rows it has ever seen, up to a thousand, which
# looks like a leak under mixed loads. Both names are read when torch is loaded.
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
