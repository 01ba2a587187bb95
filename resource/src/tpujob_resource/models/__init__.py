"""The resource as users write it, and as the API server stores it."""
