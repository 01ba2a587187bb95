"""JSON Schemas of Kubernetes' and the Prometheus Operator's objects, for checks without a cluster.

- `sources`: Where the definitions are from: Go modules, by version and content hash.
- `strict`: OpenAPI definitions as JSON Schemas that refuse unknown fields. Pure.
- `folder`: The schemas of one Kubernetes version in the files that kubeconform looks for.
"""
