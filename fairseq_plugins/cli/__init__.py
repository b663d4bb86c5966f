"""What the command line shows about this machine."""
