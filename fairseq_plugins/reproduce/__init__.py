"""The tables of papers: which runs they have, how these are made, recorded and shown."""
