"""Values from mappings and references, errors that name the field, and what each program does with both."""
