"""Text: words, sentences, English questions, citations."""
