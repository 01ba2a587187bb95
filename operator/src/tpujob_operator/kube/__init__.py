"""The Kubernetes API server: one client, and errors by whether a retry helps.

- `backoff`: How long to wait before the same thing is tried again.
- `client`: The API server, as the rest of the operator knows it: what is read and written, with preconditions.
- `errors`: What can go wrong between us and the API server. Whether trying again helps is a property of the class.
- `list_watch`: Everything there is of a resource, and then every change of it: one list, and watches that go on from
  there.
- `requests`: Requests to the API server: one answer at a time, or a stream of them. All client exceptions end here.
"""
