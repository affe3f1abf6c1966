"""What a GPU is made of, and what each part costs.

In: a GPU's description (``configs/<gpu>.toml``). Out: parts that turn bytes and instructions into cycles. Knows no kernels.
"""
