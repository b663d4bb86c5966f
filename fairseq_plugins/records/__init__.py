"""What is kept of a run: its log as numbers, its recipe, its JSON."""
