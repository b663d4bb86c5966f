"""Planning, starting, watching and resuming of runs, here or as Slurm jobs."""
