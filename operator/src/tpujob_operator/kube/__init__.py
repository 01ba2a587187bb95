"""The Kubernetes API server: one client, and errors by whether a retry helps."""
