"""Values from mappings and references, with errors that name the field."""
