"""The static site of all results: claims, tables, runs, encodings, figures and speed."""
