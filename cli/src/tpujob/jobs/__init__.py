"""Job files as people write them."""
