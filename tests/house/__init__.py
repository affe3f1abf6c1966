"""Rules for the tree itself: imports, names, sentences, sizes."""
