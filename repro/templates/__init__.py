"""Replays one recorded launch alone. Travels with every repro; needs torch, safetensors, numpy and nothing else."""

from .memory import LaunchArgument, Result, Storage
from .process import main

__all__ = ["LaunchArgument", "Result", "Storage", "main"]
