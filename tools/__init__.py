"""Programs for developers of the product."""
