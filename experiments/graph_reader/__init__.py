"""A language model with LoRA that reads evidence through graph attention (Jain & Lapata 2024; GATv2: Brody et al. 2022).

The sentences that fit the question best are tokenized. Each passage is a chain of tokens, and so is the question. Edges link
the words of the question with the same words of the evidence, and equal names of two passages. Layers of GATv2 over the
embeddings of the tokens give the states that replace the embeddings of the evidence in the prompt. There are four differences
from the paper: the question is part of the graph, edges have a type, messages run both ways along a chain, and the graph adds
0 before training.

No gain was seen: SmolLM2-135M-Instruct, 2,400 questions of SQuAD 2.0 in 600 steps, 80 tokens of evidence, one seed, 300
questions of the split dev: EM 54.0% without and 55.7% with the graph (p .35), F1 67.4% without and 66.4% with it (p .43).
"""
