"""From what a user asks for to runs that are planned, started, watched and taken up again."""
