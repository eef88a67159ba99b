"""A reader of evidence as a graph of tokens: graph attention before a language model (Jain & Lapata 2024)."""
