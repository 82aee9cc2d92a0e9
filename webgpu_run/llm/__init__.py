"""Text: tokenizers, chat templates, sampling, sessions."""
