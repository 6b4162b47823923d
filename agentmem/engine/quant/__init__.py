"""Numbers of fewer bits: formats, fused FP8 norms, calibration, FP8 checkpoints, losses."""
