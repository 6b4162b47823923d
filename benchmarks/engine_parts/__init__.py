"""Parts of benchmarks/engine.py: processes for the engines, work items, rows, the screen."""
