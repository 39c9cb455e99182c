"""Tiny vision-language models, their training pictures and their benchmarks.

`tiny_qwen25vl` and `tiny_llava` are real Qwen2.5-VL and LLaVA-NeXT checkpoints of a few million
parameters, trained here on generated pictures so that their answers truly depend on the image. They
exist to test and demonstrate the harness without a GPU; numbers measured on them say nothing about
the 7B models.

One subject per file: `markup` (answers with marked words), `pictures` (facts and drawing),
`phrasings` (questions and answers), `samples` (seeded samples per task), `tokenizer`, `models`
(configurations, processors, loading, saving), `batches` (samples to tensors), `probes` (a training
aid), `train`, `evaluate`, `choices` (short answers and options), `rows`, `rows_choice` and
`rows_mathvista` (rows in the real benchmarks' columns), `benches`.
"""
