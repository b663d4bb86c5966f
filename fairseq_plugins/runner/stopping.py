"""How a training in a job is asked to save and stop."""

STOP = "stop"  # a file in the folder of its checkpoints
