"""JSON Schemas of Kubernetes' and the Prometheus Operator's objects, for checks without a cluster.

- `sources`: The sources of the definitions: Go modules, by version and content hash.
- `strict`: OpenAPI definitions as JSON Schemas that reject unknown fields. Pure.
- `folder`: The schemas of one Kubernetes version, in files with the names that kubeconform expects.
"""
