"""The CustomResourceDefinition, generated from the models of `api`."""
