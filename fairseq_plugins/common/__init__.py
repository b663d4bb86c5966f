"""Helpers used by all packages, which import none of them."""
