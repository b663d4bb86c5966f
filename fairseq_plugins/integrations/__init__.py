"""Conversion of checkpoints to and from Hugging Face, and encodings in its models."""
