"""From rows to tokens: columns, documents, chats, tokenizers."""
