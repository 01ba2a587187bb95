"""Pages of the documentation that are made from the code: `python -m tools.reference` writes docs/reference/.

- `advice`: Exit codes that are not of the contract, and what to do about them.
- `pages`: One function for each page, from the objects that the code itself uses.
- `text`: Markdown from schemas, tables and comments.
"""
