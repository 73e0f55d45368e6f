"""Block sizes, warps and stages of a Triton kernel whose package does not record them."""
