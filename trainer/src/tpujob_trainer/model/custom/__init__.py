"""Models of the user's own, in the forms in which people have them."""
