"""The ground floor: what every room needs, and what needs none of them."""
