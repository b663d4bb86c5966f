"""Translation data: parallel text and its preparation."""
