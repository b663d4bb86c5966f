"""Pages and figures made from the results that are there."""
