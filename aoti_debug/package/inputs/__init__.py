"""The inputs of a model: their signature; reads, validates and makes them."""
