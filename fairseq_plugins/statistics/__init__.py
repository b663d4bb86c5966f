"""Statistics over results: paired differences, intervals, corrections and verdicts on claims."""
