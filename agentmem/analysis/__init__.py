"""Reading a run: rows to frames, frames to phases, scores, tables and accounting checks."""
