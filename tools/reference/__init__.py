"""Pages of the documentation that are made from the code: `python -m tools.reference` writes docs/reference/.

- `advice`: What to do about each exit code and each reason, for people who see one.
- `pages`: One function for each page, from the objects that the code itself uses.
- `text`: Markdown from schemas, tables and comments.
"""
