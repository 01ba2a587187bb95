"""The `trainer` block: its schema, what follows from it, and the JSON schema that the operator checks it by.

- `json_schema`: The `trainer` block as a JSON schema, for those who check it without importing the trainer.
- `resolve`: What a configuration comes to on given hardware: every number that the run uses, printed once at start.
- `schema`: The `trainer` block: what it may say, field by field.
"""
