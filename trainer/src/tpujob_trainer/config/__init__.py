"""The `trainer` block: its schema, its resolution, and the JSON schema that the operator checks it with."""
