"""Modules of the fairseq models: layers, their options, and checks of checkpoints."""
