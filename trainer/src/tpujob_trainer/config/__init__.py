"""The `trainer` block: its schema, what follows from it, and the JSON schema that the operator checks it by."""
