"""The resource as people write it, and as the API server stores it."""
