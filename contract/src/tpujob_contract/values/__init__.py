"""How values that people write are read: amounts, names with their spelling, rules of fields, kinds of files."""
