"""Evaluation of trained models: perplexity, GLUE, SQuAD and BLEU."""
