"""The Kubernetes API server: one client, and errors by whether a retry helps.

- `client`: The API server, as the rest of the operator knows it: the one module that talks to it and catches client
  exceptions.
- `errors`: What can go wrong between us and the API server. Whether trying again helps is a property of the class.
"""
