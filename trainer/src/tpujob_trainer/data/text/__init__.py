"""From rows to tokens: columns, documents, chats, tokenizers.

- `byte_tokenizer`: Bytes as tokens, where no tokenizer is given.
- `chat`: Conversations as text, by the chat template that comes with a tokenizer.
- `columns`: What a column of text, of messages or of tokens becomes: texts or token ids, and rows that are no use.
- `document_marks`: Documents of token ids: what begins and what ends each, and which texts are none.
- `documents`: Rows to documents of tokens: what a lane calls with some rows at a time.
- `hugging_face_tokenizer`: Tokenizers of Hugging Face: tokenizer.json.
- `row_template`: Rows with any columns as texts or conversations, by the templates of `data.template` and
  `data.messages`.
- `sentencepiece_tokenizer`: Models of SentencePiece: tokenizer.model.
- `stop_strings`: Where a written text ends by the words of whoever asked for it.
- `tiktoken_vocabulary`: Vocabularies of tiktoken as tokenizer.json.
- `tokenizer`: What a tokenizer is: text to token ids and back.
- `tokenizer_files`: Reads the tokenizer that `data.tokenizer` names, of whichever kind it is.
- `word_memo`
"""
