"""The CustomResourceDefinition, generated from the models in `tpujob_resource.models`."""
