"""Benchmarks of speed and memory, as ratios within one run: `python -m benchmarks --help`."""

import os

# Read when torch is imported; without it PyTorch's profiler prints lines of its own.
os.environ.setdefault("KINETO_LOG_LEVEL", "9")
