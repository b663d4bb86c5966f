"""Other homes of models and encodings: Hugging Face."""
