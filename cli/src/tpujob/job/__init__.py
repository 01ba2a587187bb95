"""Job files as users write them."""
