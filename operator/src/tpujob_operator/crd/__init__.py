"""The CustomResourceDefinition, generated from the models of `api`.

- `build`: The CustomResourceDefinition, made from the models: `python -m tpujob_operator.crd [--check] [FILE]`.
- `cel_rules`: What the API server itself refuses, as CEL rules with messages. `api.validation` says the same things,
  and more.
- `structural_schema`: From JSON Schema to the structural schema that Kubernetes accepts.
"""
