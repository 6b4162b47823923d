"""The engine's HTTP surfaces, one file per noun; OpenAI-compatible."""
