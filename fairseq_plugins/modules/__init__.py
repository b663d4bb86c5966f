"""Parts of the fairseq models: shared options and the position-aware decoder."""
