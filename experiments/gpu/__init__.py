"""What holds on a GPU at 7B size; `python -m experiments.gpu.check` is the command.

One subject per file: `check` (the command, its sections and budget, the exit status), `report`
(what must hold, the JSON, the printed table), `sizes` (how much is measured), `device` (clock,
memory, copy bandwidth), `models` (both 7B architectures with random weights, their prompts),
`methods` (every method with its settings), `identity` (AR's tokens from every method), `steps`
(one forward: AR, verification, prefill with a picture), `generations` (AR against `model.generate`
and against itself), `host` (drafting by every method, and the engine's own work).

It runs on a bare machine: torch, transformers, numpy and numba, and pillow for the pictures of
`identity`. Of the rest of the repository it imports recap, baselines and `experiments.timing`.
"""
