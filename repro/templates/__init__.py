"""Replays one recorded launch alone. Travels with every repro; needs torch, safetensors, numpy and nothing else."""

from .memory import Argument, Result, Storage
from .process import main

__all__ = ["Argument", "Result", "Storage", "main"]
