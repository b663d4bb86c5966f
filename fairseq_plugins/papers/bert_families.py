"""On Position Embeddings in BERT (Wang et al. 2021), Table 7: models of other families."""

# By metric, the paper's name of a property.
COLUMNS = {
    "monotonicity": "monotonicity, all offsets",
    "monotonicity_20": "monotonicity, first 20",
    "translation_invariance_words": "translation invariance w/o special tokens",
    "symmetry": "symmetry",
    "direction_balance": "direction balance",
}

# By model the numbers of the columns. The infinite balance is the paper's.
TABLE_7 = {
    "BERT": (0.2461, 0.0208, 0.0143, 0.0012, 1.1940),
    "GPT": (0.1019, 0.0044, 0.1114, 0.0070, float("inf")),
    "Machine Translation": (0.3540, 0.0841, 0.0214, 0.0002, 0.8074),
}
MODEL_TYPES = {
    "BERT": "encoder only",
    "GPT": "decoder only",
    "Machine Translation": "encoder & decoder",
}
