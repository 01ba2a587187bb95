"""What commands print: documents, words and numbers, and the error that ends one."""
