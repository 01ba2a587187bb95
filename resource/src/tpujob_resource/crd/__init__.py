"""The CustomResourceDefinition, generated from the models of `api`.

- `accelerator_rules`: What the API server refuses of `spec.accelerator`: the form, then the sizes and shapes of each
  generation.
- `build`: The CustomResourceDefinition, made from the models: `python -m tpujob_resource.crd [--check] [FILE]`.
- `cel`: Rules and string literals in CEL, the language in which the API server checks a resource.
- `change_rules`: What the API server refuses of a whole resource: its name, and what cannot change while a job runs.
- `pod_rules`: What the API server refuses of the fields of `spec` that go into the pods as they are.
- `spec_rules`: What the API server refuses of `spec`: which fields go together. `api.validation` says the same things,
  and more.
- `structural_schema`: From JSON Schema to the structural schema that Kubernetes accepts.
"""
