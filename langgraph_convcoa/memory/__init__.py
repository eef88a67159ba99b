"""The memory of a conversation: knowledge set, dynamic history (Zhang et al. 2025), recalled answers, earlier evidence."""
