"""Models of other libraries: see `huggingface`."""
