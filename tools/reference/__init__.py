"""Generates pages of the documentation from the code: `python -m tools.reference` writes docs/reference/.

- `advice`: Exit codes outside the contract, and what to do about them.
- `pages`: One function for each page, from the objects that the code uses.
- `api`: The page about versions of the API.
- `rules`: The page of the rules between fields.
- `text`: Markdown from schemas, tables and comments.
"""
