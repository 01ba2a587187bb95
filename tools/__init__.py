"""Programs for people who work on the product."""
