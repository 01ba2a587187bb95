"""From rows to tokens: columns, documents, chats, tokenizers.

- `chat`: Conversations as text, by the chat template that comes with a tokenizer.
- `columns`: What a column of text, of messages or of tokens becomes: texts or token ids, and rows that are no use.
- `documents`: Rows to documents of tokens: what a lane calls with some rows at a time.
- `row_template`: Rows with any columns as texts or conversations, by the templates of `data.template` and
  `data.messages`.
- `tokenizer`: Text to token ids and back.
- `word_memo`
"""
