"""Text in, canonical Arrow tables out; tokenised rows and batches for every model.

A table between two stages is Parquet with these columns, whatever the source was called:

| column | type | meaning |
|---|---|---|
| `text` | string | the text, byte for byte as the user gave it |
| `text_pair` | string | the second text; only in pair tasks |
| `label` | string | the label's name; null where there is none |
| `origin` | string | transfer sets only (docs/files.md): `original`, `augmented`, ... |
| `key` | fixed_size_binary[16] | logits only: hash of the text(s), see `content.content_keys` |
| `logits` | list of fp16 or fp32 | logits only: one number a label, in the manifest's order |
"""
