"""Speed and memory as ratios measured in one run: `python -m benchmarks --help`."""

import os

# PyTorch's profiler, which counts memory, reads it when torch is imported, and else prints lines
# of its own between ours.
os.environ.setdefault("KINETO_LOG_LEVEL", "9")
