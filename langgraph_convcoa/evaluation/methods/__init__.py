"""Methods that answer a question with a language model and a retriever, each as in its paper."""
