"""Translation: parallel text, its preparation, translating with a model, and BLEU."""
