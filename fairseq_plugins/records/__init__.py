"""Records of runs: logs, recipes and the JSON of results."""
